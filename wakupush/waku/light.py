"""A node as a light client: filter and light push of nwaku and go-waku.

Source: docs/reference/contracts/waku-rest.md, sections 3, 4 and 6. Success is the status and, for filter, a
``statusDesc`` of OK. nwaku has light push v3, and go-waku v1 alone.
"""

import uuid
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from wakupush.model.waku_message import WakuMessage
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.codec import decode_messages, encode_message, parse
from wakupush.waku.errors import AnswerLost, NodeUnreachable, NodeUnreadable, NotSubscribed, PushedToNobody
from wakupush.waku.rest import check, printable

#: Content topics of one subscription at most; go-waku refuses more.
MOST_TOPICS = 100

_SUBSCRIPTIONS = "/filter/v2/subscriptions"
_OK = "OK"
#: Light push v3 first; a 404 shows that a node has not got it.
_PUSHES = ("/lightpush/v3/message", "/lightpush/v1/message")
#: A nwaku's texts: v1 and v3 say this of a message that it handed to nobody, and of one that it knows.
_TO_NOBODY = (b"not_published_to_any_peer", b"No peers for topic")
#: Newer ones say this of a message that they know.
_KNOWN = b"already-seen"
#: The service node did not answer in time.
_TIMED_OUT = b"Push request timed out"
#: A go-waku before 0.10.3 may leave these requests without an answer for good, while it answers all others.
_HANGS = "if that goes on, restart the light node; a go-waku has to be 0.10.3 or newer"


class LightNode:
    """A node that has filter and light push peers, or is one itself."""

    def __init__(self, rest: AsyncRest) -> None:
        self._rest = rest
        #: nwaku reads by content topic alone; go-waku, on a static shard, only with the shard in front.
        self._by_content_topic = False
        #: How it took the last message.
        self._push = _PUSHES[0]

    async def subscribe(self, pubsub_topic: str, content_topics: Iterable[str]) -> None:
        """Subscribe to content topics of a shard, in addition to the present subscriptions.

        Service nodes take one such request a second, and at most 100 topics in one.

        Raises:
            NodeUnreachable: try again: too many requests, no service node, or it does not serve the shard.
        """
        await self._filter("POST", pubsub_topic, content_topics)

    async def unsubscribe(self, pubsub_topic: str, content_topics: Iterable[str]) -> None:
        """Take a subscription back.

        Raises:
            NodeUnreachable: try again, or let it expire.
        """
        await self._filter("DELETE", pubsub_topic, content_topics)

    async def ping(self) -> None:
        """Keep the subscriptions alive; nwaku forgets them after five minutes.

        Success says that the service node has at least one of ours, not that it has all, nor that our node takes more.

        Raises:
            NotSubscribed: the service node has none of ours, or cannot be reached: subscribe again.
            NodeUnreachable: our own node does not answer.
        """
        status, body = await self._rest.send("GET", f"{_SUBSCRIPTIONS}/{uuid.uuid4()}")
        if status != HTTPStatus.OK or _description(body) != _OK:
            raise NotSubscribed(f"{status}: {_description(body)}")

    async def read(self, pubsub_topic: str, content_topic: str) -> tuple[WakuMessage, ...]:
        """Take the waiting messages of a content topic out of the node.

        nwaku does not separate the shards here. Both nodes keep few unread messages: read often.

        Raises:
            NotSubscribed: our node was restarted: subscribe again.
            NodeUnreachable: try again.
            NodeUnreadable: what was read is lost.
        """
        status, body = int(HTTPStatus.NOT_FOUND), b""
        if not self._by_content_topic:
            status, body = await self._read(f"{quote(pubsub_topic, safe='')}/{quote(content_topic, safe='')}")
        if status == HTTPStatus.NOT_FOUND and not body:
            # nwaku has no such path. go-waku has it, and names the topic that is not subscribed.
            status, body = await self._read(quote(content_topic, safe=""))
            self._by_content_topic = status != HTTPStatus.NOT_FOUND
        if status in {HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST}:
            raise NotSubscribed(printable(body.decode("utf-8", "replace")))
        check(status, body)
        return decode_messages(body)[0]

    async def publish(self, pubsub_topic: str, message: WakuMessage) -> None:
        """Have a message pushed into the network; success, too, if the service node says that it knows the message.

        A go-waku takes about one a second.

        Raises:
            NodeUnreachable: try again. Both nodes say so too of a message that is too large.
            AnswerLost: as above; the message may be out.
            PushedToNobody: as above; if only the answer was lost, the message is out.
            NodeRefused: this message will never be taken.
        """
        value = {"pubsubTopic": pubsub_topic, "message": encode_message(message)}
        status, body = int(HTTPStatus.NOT_FOUND), b""
        for path in (self._push, *(each for each in _PUSHES if each != self._push)):
            status, body = await self._rest.send("POST", path, value)
            if status != HTTPStatus.NOT_FOUND:
                self._push = path
                break
        text = f"{status}: {printable(body.decode('utf-8', 'replace'))}"
        if any(reason in body for reason in _TO_NOBODY) or _field(body, "relayPeerCount") == 0:
            raise PushedToNobody(text)
        if _TIMED_OUT in body:
            raise AnswerLost(text)
        if _KNOWN not in body:
            check(status, body)

    async def _read(self, path: str) -> tuple[int, bytes]:
        return await self._rest.send("GET", f"/filter/v2/messages/{path}")

    async def _filter(self, method: str, pubsub_topic: str, content_topics: Iterable[str]) -> None:
        value = {"requestId": str(uuid.uuid4()), "contentFilters": list(content_topics), "pubsubTopic": pubsub_topic}
        try:
            status, body = await self._rest.send(method, _SUBSCRIPTIONS, value)
        except NodeUnreachable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise NodeUnreachable(f"{error}: {_HANGS}") from error
            raise
        if status != HTTPStatus.OK or _description(body) != _OK:
            # For any status: both nodes sometimes refuse a message that they accept a second later.
            raise NodeUnreachable(f"{status}: {_description(body)}")


def _description(body: bytes) -> str:
    text = _field(body, "statusDesc")
    return printable(text) if isinstance(text, str) else ""


def _field(body: bytes, name: str) -> Any:
    """Return a field of an answer, None if the answer has none."""
    try:
        value: Any = parse(body)
    except NodeUnreadable:
        return None
    return value.get(name) if isinstance(value, dict) else None
