"""Queries and answers of the two kinds of Store: values in, parameters and pages out.

Source: docs/reference/contracts/waku-rest.md, sections 5 and 6. nwaku serves Store v3 (camelCase, hashes in 0x-hex,
the status inside the body counts); go-waku serves Store v1 of its own archive, which has neither hash nor ``meta``, and
Store v3 of a peer (snake_case, hashes in base64).
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.waku.codec import PAYLOAD_LIMIT, decode_message, parse
from wakupush.waku.errors import NodeBusy, NodeUnreachable, NodeUnreadable
from wakupush.waku.rest import printable

V3 = "/store/v3/messages"
V1 = "/store/v1/messages"
#: Hashes of a page at most, of both kinds of nodes.
PAGE_SIZE = 100
#: Messages of a page: of the largest size they have 22 MB of JSON.
DATA_PAGE_SIZE = 16
#: Content topics of a query at most, in both kinds.
MOST_CONTENT_TOPICS = 10

_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
_BASE64_HASH = re.compile(r"[A-Za-z0-9+/]{43}=")
#: A nwaku's keys, and what a go-waku calls them.
_GO_WAKU_KEYS = {
    "statusCode": "status_code",
    "statusDesc": "status_desc",
    "messageHash": "message_hash",
    "paginationCursor": "pagination_cursor",
}
_DIGEST = re.compile(r"[A-Za-z0-9+/_-]{1,128}={0,2}")
_TIME = re.compile(r"-?[0-9]{1,19}")
_TO_URL_SAFE = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query to a Store."""

    #: The shard.
    pubsub_topic: str
    #: None means the whole shard. Nodes take `MOST_CONTENT_TOPICS` at most; `Store.walk` asks for more in parts.
    content_topics: tuple[str, ...] = ()
    #: Nanoseconds since the epoch by the senders' clocks, both inclusive and above 0.
    start: int
    end: int
    #: False: the newest page first. Either way the oldest message of a page comes first.
    ascending: bool = True

    def parameters(self, page_size: int = DATA_PAGE_SIZE) -> dict[str, str]:
        """Return the parameters that both kinds understand."""
        topics = {"contentTopics": ",".join(self.content_topics)} if self.content_topics else {}
        return {
            "pubsubTopic": self.pubsub_topic,
            **topics,
            "startTime": str(self.start),
            "endTime": str(self.end),
            "ascending": str(self.ascending).lower(),
            "pageSize": str(page_size),
        }

    def only(self, page: Page, *, timeless: bool = False) -> Page:
        """Return the page without messages that the query does not cover; these count as malformed.

        Args:
            page: hashes without their message are taken as they are.
            timeless: whether messages without a time are found by the time of their arrival, as in a Store v1.
        """
        messages = tuple(
            entry for entry in page.messages if entry.message is None or self._asks(entry.message, timeless)
        )
        return Page(messages, page.malformed + len(page.messages) - len(messages))

    def _asks(self, message: WakuMessage, timeless: bool) -> bool:
        of_its_topics = not self.content_topics or message.content_topic in self.content_topics
        return of_its_topics and (self.start <= message.timestamp <= self.end or (timeless and message.timestamp == 0))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a Store."""

    #: 14/WAKU2-MESSAGE deterministic hash, 32 bytes.
    hash: bytes
    #: None if only hashes were asked for.
    message: WakuMessage | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """The content of one answer of a Store."""

    messages: tuple[StoredMessage, ...]
    #: Messages that could not be read, whose hash is not theirs, or that were not asked for.
    malformed: int = 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page begins."""

    #: To be sent with the query.
    parameters: Mapping[str, str]
    #: Whether the page ended at a message without a timestamp (known from Store v1 only).
    is_timeless: bool = False


def speaks_v1(status: int, body: bytes) -> bool:
    """Return whether an answer to a Store v3 query shows a node that needs Store v1."""
    return status == HTTPStatus.NOT_FOUND or is_go_waku(body)


def is_go_waku(body: bytes) -> bool:
    """Return whether an answer to a Store v3 query comes from a go-waku, which never reads its own Store for it."""
    try:
        answer = parse(body)
    except NodeUnreadable:
        return False
    return isinstance(answer, dict) and bool(answer.keys() & {"error_message", "status_code"})


def hash_parameters(hashes: Iterable[bytes], *, for_go_waku: bool = False) -> dict[str, str]:
    """Return the parameters with which messages of a Store v3 are asked for by their hashes (32 bytes each)."""
    write = _url_safe if for_go_waku else _hex
    return {
        "hashes": ",".join(map(write, hashes)),
        "includeData": "true",
        "pageSize": str(PAGE_SIZE),
    }


def decode_v3(body: bytes, pubsub_topic: str, payload_limit: int = PAYLOAD_LIMIT) -> tuple[Page, Cursor | None]:
    """Return a page of a Store v3, and where the next one begins.

    A message counts as malformed if the given hash is not that of the message on this shard.

    Args:
        body: the answer.
        payload_limit: bytes of payload at most; a larger message counts as malformed.

    Raises:
        NodeBusy: the rate is limited.
        NodeUnreachable: another status inside the body.
        NodeUnreadable: it is no such page.
    """
    answer = parse(body)
    is_go = isinstance(answer, dict) and "status_code" in answer
    if not isinstance(answer, dict) or type(status := _value(answer, "statusCode")) is not int:
        raise NodeUnreadable("the answer is not a page of a Store v3")
    if status != HTTPStatus.OK:
        text = f"{status}: {printable(str(_value(answer, 'statusDesc')))}"
        raise NodeBusy(text) if status == HTTPStatus.TOO_MANY_REQUESTS else NodeUnreachable(text)
    entries = _entries(answer)
    messages = []
    for entry in entries:
        with suppress(NodeUnreadable):
            messages.append(_stored_message(entry, pubsub_topic, payload_limit))
    cursor = _value(answer, "paginationCursor")
    page = Page(tuple(messages), len(entries) - len(messages))
    write = _url_safe if is_go else _hex
    return page, None if cursor in (None, "") else Cursor({"cursor": write(_hash(cursor))})


def decode_v1(body: bytes, pubsub_topic: str, payload_limit: int = PAYLOAD_LIMIT) -> tuple[Page, Cursor | None]:
    """Return a page of a go-waku's Store v1, and where the next one begins; the arguments are those of `decode_v3`.

    The hash is computed. Store v1 leaves out ``meta``, so that of a message with ``meta`` is another than on the relay.

    Raises:
        NodeUnreachable: the answer is an error.
        NodeUnreadable: it is no such page.
    """
    answer = parse(body)
    if not isinstance(answer, dict):
        raise NodeUnreadable("the answer is not a page of a Store v1")
    if answer.get("error_message"):
        raise NodeUnreachable(printable(str(answer["error_message"])))
    if "messages" not in answer:
        raise NodeUnreadable("the answer is not a page of a Store v1")
    entries = _entries(answer)
    messages = []
    for entry in entries:
        with suppress(NodeUnreadable):
            message = decode_message(entry, payload_limit)
            messages.append(StoredMessage(message_hash(pubsub_topic, message), message))
    return Page(tuple(messages), len(entries) - len(messages)), _v1_cursor(answer.get("cursor"))


def _entries(answer: dict[str, Any]) -> list[Any]:
    entries = answer.get("messages")
    if entries is None:
        return []
    if not isinstance(entries, list) or len(entries) > PAGE_SIZE:
        raise NodeUnreadable("messages is not an array, or longer than a page")
    return entries


def _stored_message(entry: object, pubsub_topic: str, payload_limit: int) -> StoredMessage:
    if not isinstance(entry, dict):
        raise NodeUnreadable("the message is not an object")
    named_hash = _hash(_value(entry, "messageHash"))
    if entry.get("message") is None:
        return StoredMessage(named_hash)
    message = decode_message(entry["message"], payload_limit)
    if message_hash(pubsub_topic, message) != named_hash:
        raise NodeUnreadable("the hash is not that of the message")
    return StoredMessage(named_hash, message)


def _value(fields: dict[str, Any], name: str) -> Any:
    """Return the value of a nwaku's key, or of a go-waku's for the same."""
    return fields.get(name, fields.get(_GO_WAKU_KEYS[name]))


def _hash(value: object) -> bytes:
    """Return the hash that a nwaku writes in 0x-hex, and a go-waku in base64."""
    if isinstance(value, str) and _HASH.fullmatch(value):
        return bytes.fromhex(value[2:])
    if isinstance(value, str) and _BASE64_HASH.fullmatch(value):
        return b64decode(value)
    raise NodeUnreadable("a hash is not 32 bytes of 0x-hex or base64")


def _hex(digest: bytes) -> str:
    return f"0x{digest.hex()}"


def _url_safe(digest: bytes) -> str:
    return urlsafe_b64encode(digest).decode()


def _v1_cursor(cursor: object) -> Cursor | None:
    if not cursor:
        return None
    match cursor:
        case {"senderTime": str(sent), "storeTime": str(stored), "digest": str(digest)} if (
            _TIME.fullmatch(sent) and _TIME.fullmatch(stored) and _DIGEST.fullmatch(digest)
        ):
            # It comes in standard base64, and has to go back in the URL-safe alphabet, padded.
            bare = digest.rstrip("=").translate(_TO_URL_SAFE)
            text = bare + "=" * (-len(bare) % 4)
            return Cursor({"senderTime": sent, "storeTime": stored, "digest": text}, is_timeless=int(sent) == 0)
    raise NodeUnreadable("the cursor is not that of a Store v1")
