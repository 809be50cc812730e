"""Reading values from requests as nwaku does, with its error texts, and writing messages as it does."""

import base64
import binascii
import json
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage

_UINT32 = 2**32
_MESSAGE_FIELDS = {
    "payload": str,
    "contentTopic": str,
    "version": int,
    "timestamp": int,
    "meta": str,
    "ephemeral": bool,
    "proof": str,
}


class BodyRefusedError(ValueError):
    """A request's body or its type is wrong; the text is the answer's."""


class NoContentTypeError(BodyRefusedError):
    """A request has no ``Content-Type``; this answer alone is not plain text."""


class UndecodableError(BodyRefusedError):
    """The body is not JSON of the right keys and types; nwaku does not say which."""

    def __init__(self) -> None:
        super().__init__("Invalid content body, could not decode: Unable to deserialize data: ")


def text(content: object, status: int = 200) -> Response:
    """Return an answer in plain text."""
    return Response(str(content), status, headers={"Content-Type": "text/plain"})


def refusal_of(error: BodyRefusedError) -> Response:
    """Return the answer to a body that is refused."""
    if isinstance(error, NoContentTypeError):
        return Response(str(error), 400, headers={"Content-Type": "text/html; charset=utf-8"})
    return text(error, 400)


async def json_body(request: Request, *, empty: str = "") -> Any:
    """Return the JSON value of a body whose type is JSON or plain text.

    Args:
        request: of relay or light push.
        empty: the text of the error if there is none.

    Raises:
        BodyRefusedError: it is of another type or not JSON; an object that has a key twice is not.
    """
    content_type = request.headers.get("content-type")
    if content_type is None:
        raise NoContentTypeError("Invalid content type")
    if content_type.partition(";")[0].strip().lower() not in {"application/json", "text/plain"}:
        raise BodyRefusedError("Wrong Content-Type, expected application/json or text/plain")
    body = await request.body()
    if not body:
        raise BodyRefusedError(empty)
    return parse_json(body)


def parse_json(body: bytes) -> Any:
    """Return a JSON value.

    Raises:
        UndecodableError: it is not JSON, or an object has a key twice.
    """
    try:
        return json.loads(body, object_pairs_hook=_object, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise UndecodableError from None


def message_from(body: Any) -> WakuMessage:
    """Return the message of a publish request. ``meta`` may be longer than any node decodes.

    Raises:
        BodyRefusedError: a key is missing, unknown, null, or of a wrong type.
    """
    if not isinstance(body, dict) or any(type(value) is not _MESSAGE_FIELDS.get(name) for name, value in body.items()):
        raise UndecodableError
    if not all(body.get(name, "").strip() for name in ("payload", "contentTopic")):
        raise UndecodableError
    version, timestamp = body.get("version", 0), body.get("timestamp", 0)
    if not 0 <= version <= INT64_MAX or not INT64_MIN <= timestamp <= INT64_MAX or not _is_text(body["contentTopic"]):
        raise UndecodableError
    return WakuMessage(
        payload=_base64(body["payload"]),
        content_topic=body["contentTopic"],
        version=version % _UINT32,
        timestamp=timestamp or time.time_ns(),
        meta=_base64(body.get("meta", "")),
        ephemeral=body.get("ephemeral", False),
    )


def message_json(message: WakuMessage) -> dict[str, Any]:
    """Return a message as filter and Store write it; the relay adds an empty ``proof``."""
    return {
        "payload": base64.b64encode(message.payload).decode(),
        "contentTopic": message.content_topic,
        "version": message.version,
        "timestamp": message.timestamp,
        **({"meta": base64.b64encode(message.meta).decode()} if message.meta else {}),
        "ephemeral": message.ephemeral,
    }


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _refuse(_: str) -> None:
    raise ValueError("not a number of JSON")


def _is_text(value: str) -> bool:
    """Return whether a JSON string has no lone surrogates, which JSON can name and UTF-8 cannot."""
    return value.encode("utf-8", "replace").decode() == value


def _base64(value: str) -> bytes:
    """Return the bytes of standard base64, whose padding may be left out."""
    padding = "" if "=" in value else "=" * (-len(value) % 4)
    try:
        return base64.b64decode(value + padding, validate=True)
    except (binascii.Error, ValueError):
        raise BodyRefusedError("Incorrect base64 string") from None
