"""The requests to a node and the meaning of its answers, for any HTTP client.

Source: docs/reference/contracts/waku-rest.md, sections 1, 2 and 6. Success is the status alone; bodies differ between
the nodes.
"""

from http import HTTPStatus
from urllib.parse import quote

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from wakupush.waku.errors import NodeBusy, NodeRefused, NodeUnreachable, NotPublished

#: The most bytes of an answer. Parsing takes three times as much memory.
ANSWER_LIMIT = 64 * 1024 * 1024
#: Characters of a node's text to keep.
TEXT_LIMIT = 200

#: Statuses with which a node judges a message. Any other failure says nothing about it.
_REFUSALS = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}
#: nwaku's 400s where go-waku answers with 500: the node's state, not the message, is the reason.
_NWAKU_TO_NOBODY = (b"not subscribed to topic", b"NoPeersToPublish")

#: Asks again if the node limits the rate of requests; for functions and coroutines.
while_busy = retry(
    retry=retry_if_exception_type(NodeBusy),
    wait=wait_exponential(multiplier=0.25, max=4),
    stop=stop_after_attempt(6),
    reraise=True,
)


def messages_path(pubsub_topic: str) -> str:
    """Return the path under which a topic's messages are read and published."""
    return f"/relay/v1/messages/{quote(pubsub_topic, safe='')}"


def check_published(status: int, body: bytes) -> None:
    """Check the answer to a published message.

    Raises:
        NodeUnreachable: try again; `NotPublished`: on this shard it went to nobody.
        NodeRefused: this message will never be taken.
    """
    if status == HTTPStatus.BAD_REQUEST and any(reason in body for reason in _NWAKU_TO_NOBODY):
        raise NotPublished("the node is not subscribed to the topic, or has no peers")
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and not body:
        raise NotPublished("the node is not subscribed to the topic, or has no peers there")
    check(status, body)


def check(status: int, body: bytes) -> None:
    """Check the status of an answer.

    Raises:
        NodeUnreachable: try again; `NodeBusy`: more slowly.
        NodeRefused: the node judged the message.
    """
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    text = printable(body[: 4 * TEXT_LIMIT].decode("utf-8", "replace"))
    if status in _REFUSALS:
        raise NodeRefused(status, text)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise NodeBusy(f"{status}: {text}")
    raise NodeUnreachable(f"{status}: {text}")


def printable(text: str) -> str:
    """Return the loggable part of a node's text: at most 200 printable characters."""
    return "".join(character if character.isprintable() else " " for character in text[:TEXT_LIMIT]).strip()
