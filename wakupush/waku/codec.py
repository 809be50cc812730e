"""Waku messages in the JSON of a node's REST API: bytes and values in, bytes and values out.

Source: docs/reference/contracts/waku-rest.md, sections 1, 2 and 6. go-waku leaves out absent keys, nwaku writes all of
them; Store v3 of go-waku writes the timestamp as a string.
"""

import binascii
import json
import re
from base64 import b64decode, b64encode
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage
from wakupush.waku.errors import AnswerTooLarge, NodeUnreadable

#: Bytes of a payload that are read at most, unless told otherwise: the nodes of the Status network relay 1 MiB.
PAYLOAD_LIMIT = 1024 * 1024
#: Bytes of an answer at most if they are not all ASCII: in memory a single emoji makes four bytes of each character.
NON_ASCII_LIMIT = 24 * 1024 * 1024
#: JSON values in an answer at most: each takes up to 200 bytes of memory, an empty object of 3 bytes 64. A message has
#: seven, and its payload none.
MOST_VALUES: Final = 500_000
#: Bytes of a content topic at most, in UTF-8. Ours have 23; the nodes relay any text.
CONTENT_TOPIC_LIMIT = 1024
#: Bytes of meta at most.
META_LIMIT = 64
UINT32_MAX = 2**32 - 1

_DECIMAL = re.compile(r"-?[0-9]{1,19}")
#: Up to the beginning of a value, past texts, or to the end: it matches anywhere, so that looking takes linear time.
_TO_NEXT_VALUE = re.compile(rb'(?:[^",\[{]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))*+(?:[,\[{]|\Z)', re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_FROM_URL_SAFE = str.maketrans("-_", "+/")


def encode_message(message: WakuMessage) -> dict[str, str | int | bool]:
    """Return the JSON object of a message, as nodes take it for publishing.

    Both nodes take it: standard padded base64, the timestamp in nanoseconds as an exact integer, no empty ``meta``.

    Args:
        message: its bounds are not checked; the node refuses what exceeds them.
    """
    fields: dict[str, str | int | bool] = {
        "payload": b64encode(message.payload).decode(),
        "contentTopic": message.content_topic,
        "version": message.version,
        "timestamp": message.timestamp,
        "ephemeral": message.ephemeral,
    }
    if message.meta:
        fields["meta"] = b64encode(message.meta).decode()
    return fields


def decode_message(obj: object, payload_limit: int = PAYLOAD_LIMIT) -> WakuMessage:
    """Return a message that a node handed out.

    Args:
        obj: a parsed JSON value; keys that are not known are ignored.
        payload_limit: bytes of payload at most.

    Raises:
        NodeUnreadable: a part is missing, of a wrong type, or exceeds its bounds.
    """
    if not isinstance(obj, dict):
        raise NodeUnreadable("the message is not an object")
    meta = obj.get("meta")
    return WakuMessage(
        payload=_binary(obj.get("payload"), "payload", payload_limit),
        content_topic=_content_topic(obj.get("contentTopic")),
        version=_integer(obj.get("version"), "version", 0, UINT32_MAX),
        timestamp=_integer(_number(obj.get("timestamp")), "timestamp", INT64_MIN, INT64_MAX),
        meta=b"" if meta is None else _binary(meta, "meta", META_LIMIT),
        ephemeral=_flag(obj.get("ephemeral")),
    )


def decode_messages(body: bytes, payload_limit: int = PAYLOAD_LIMIT) -> tuple[tuple[WakuMessage, ...], int]:
    """Return the messages of a relay read, in the node's order, and how many could not be read.

    Args:
        body: an array of messages; ``null`` and ``[]`` both mean that there are none.
        payload_limit: bytes of payload at most; a larger message counts as unreadable.

    Raises:
        NodeUnreadable: the body is neither an array nor null.
    """
    entries = parse(body)
    if entries is None:
        return (), 0
    if not isinstance(entries, list):
        raise NodeUnreadable("the answer is not an array")
    messages = []
    for entry in entries:
        with suppress(NodeUnreadable):
            messages.append(decode_message(entry, payload_limit))
    return tuple(messages), len(entries) - len(messages)


def parse(body: bytes) -> Any:
    """Return the JSON value of a node's answer.

    Raises:
        AnswerTooLarge: it has more than `NON_ASCII_LIMIT` bytes, not all of them ASCII, or more than `MOST_VALUES`.
        NodeUnreadable: it is not JSON, or nested too deeply.
    """
    if len(body) > NON_ASCII_LIMIT and not body.isascii():
        raise AnswerTooLarge("the answer is too large")
    # What stands in a text is its sender's, and must not make a page unreadable.
    if sum(body.count(begin) for begin in (b",", b"[", b"{")) > MOST_VALUES and _has_many_values(body):
        raise AnswerTooLarge("the answer has too many values")
    # Bytes that are not UTF-8 become lone surrogates: only the message that has them is refused, not its neighbours.
    text = body.decode("utf-8", "surrogateescape")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NodeUnreadable("the answer is not JSON") from None


def _has_many_values(body: bytes) -> bool:
    return next(islice(_TO_NEXT_VALUE.finditer(body), MOST_VALUES, None), None) is not None


def _binary(value: object, name: str, limit: int) -> bytes:
    if not isinstance(value, str) or len(value) > limit * 2 + 4:
        raise NodeUnreadable(f"{name} is not a text or too long")
    data = _standard_base64(value)
    if data is None:
        data = _any_base64(value, name)
    if len(data) > limit:
        raise NodeUnreadable(f"{name} is longer than {limit} bytes")
    return data


def _standard_base64(value: str) -> bytes | None:
    """Return the bytes of base64 as both nodes write it, in a quarter of the time; None if it is another text."""
    # Strict mode takes too many of these at the end.
    if len(value) % 4 or value.endswith("==="):
        return None
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        return None


def _any_base64(value: str, name: str) -> bytes:
    """Return the bytes of base64 in the standard or the URL-safe alphabet, padded or not."""
    text = value.translate(_FROM_URL_SAFE)
    if not _BASE64.fullmatch(text) or (text.endswith("=") and len(text) % 4):
        raise NodeUnreadable(f"{name} is not base64")
    try:
        return b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise NodeUnreadable(f"{name} is not base64") from None


def _content_topic(value: object) -> str:
    if not isinstance(value, str) or len(value) > CONTENT_TOPIC_LIMIT:
        raise NodeUnreadable("contentTopic is not a text or too long")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise NodeUnreadable("contentTopic is not UTF-8") from None
    if len(data) > CONTENT_TOPIC_LIMIT:
        raise NodeUnreadable("contentTopic is too long")
    return value


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


def _integer(value: object, name: str, least: int, most: int) -> int:
    if value is None:
        return 0
    if type(value) is not int or not least <= value <= most:
        raise NodeUnreadable(f"{name} is not an integer of its range")
    return value


def _flag(value: object) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise NodeUnreadable("ephemeral is not a boolean")
    return value
