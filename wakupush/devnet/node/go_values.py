"""Reading values from requests as go-waku does, with the error texts of Go, and writing messages as it does.

go-waku sends these texts to its clients. Every function that reads raises ValueError with them.
"""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from wakupush.devnet.node.go_waku_state import SparseMessage
from wakupush.devnet.node.state import MOST_META
from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage

UINT64_MAX = 2**64 - 1

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _Field(NamedTuple):
    """A field of a published message: its type in Go, its kind in JSON and, for a number, its range."""

    go_type: str
    kind: str
    bounds: range | None = None


_FIELDS = {
    "payload": _Field("server.Base64URLByte", "string"),
    "contentTopic": _Field("string", "string"),
    "version": _Field("uint32", "number", range(2**32)),
    "timestamp": _Field("int64", "number", range(INT64_MIN, INT64_MAX + 1)),
    "meta": _Field("[]uint8", "string"),
    "ephemeral": _Field("bool", "bool"),
}


@dataclass(frozen=True, slots=True)
class Fraction:
    """A JSON number that is not an integer, as it was written."""

    text: str

    def __str__(self) -> str:
        return self.text


def kind(value: object) -> str:
    """Return Go's name for the kind of a JSON value."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "number"


def parse_json(body: bytes) -> Any:
    """Return the first JSON value of a body, fractions as `Fraction`; like Go's decoder, ignore the rest."""
    text = body.decode("utf-8", "replace").strip()
    if not text:
        raise ValueError("EOF")
    try:
        value, _ = json.JSONDecoder(parse_float=Fraction, parse_constant=_refuse_constant).raw_decode(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated"):
            raise ValueError("unexpected EOF") from None
        raise ValueError(f"invalid character '{text[error.pos]}' looking for beginning of value") from None
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    return value


def parse_text(text: str) -> str:
    """Return a JSON string without the lone surrogates that JSON can name and UTF-8 cannot."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def parse_base64(text: str, *, url_safe: bool = False, padded: bool = True) -> bytes:
    """Return the bytes of one of Go's four base64 encodings."""
    alphabet = "-_" if url_safe else "+/"
    text = text.replace("\r", "").replace("\n", "")
    good = len(text) - len(text.lstrip(f"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789{alphabet}"))
    rest, padding = text[good:], "=" * (-good % 4)
    if rest != (padding if padded else "") or good % 4 == 1:
        raise ValueError(f"illegal base64 data at input byte {good if rest else good - good % 4}")
    return base64.b64decode(text[:good] + padding, altchars=alphabet.encode())


def parse_int(text: str) -> int:
    """Return an int64."""
    return _parse_integer("ParseInt", r"[+-]?[0-9]+", INT64_MIN, INT64_MAX, text)


def parse_uint(text: str) -> int:
    """Return a uint64."""
    return _parse_integer("ParseUint", r"[0-9]+", 0, UINT64_MAX, text)


def parse_bool(text: str) -> bool:
    """Return a boolean, of which Go knows twelve spellings."""
    if text not in _BOOLEANS:
        raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return _BOOLEANS[text]


def message_from(body: Any) -> SparseMessage:
    """Return the message of a publish request; ValueError says what is wrong with it, as go-waku would."""
    if body is None:
        raise ValueError("wakumessage is missing")
    if not isinstance(body, dict):
        raise ValueError(f"json: cannot unmarshal {kind(body)} into Go value of type rest.RestWakuMessage")  # noqa: TRY004
    values = {key.lower(): value for key, value in body.items() if value is not None}  # Go ignores case
    fields = {name: values[name.lower()] for name in _FIELDS if name.lower() in values}
    for name, value in fields.items():
        _check_field(name, value)
    message = SparseMessage(
        payload=_payload(fields.get("payload", "")),
        content_topic=parse_text(fields.get("contentTopic", "")),
        version=fields.get("version", 0),
        timestamp=fields.get("timestamp", 0),
        meta=parse_base64(fields.get("meta", "")),
        ephemeral=fields.get("ephemeral", False),
        unset=frozenset(_FIELDS.keys() - fields),
    )
    if not message.payload:
        raise ValueError("missing Payload field")
    if not message.content_topic:
        raise ValueError("missing ContentTopic field")
    if len(message.meta) > MOST_META:
        raise ValueError("invalid length for Meta field")
    return message


def relay_json(message: WakuMessage) -> dict[str, Any]:
    """Return a message as relay and filter write it."""
    unset = message.unset if isinstance(message, SparseMessage) else frozenset[str]()
    optional = {"version": message.version, "timestamp": message.timestamp}
    return {
        "payload": base64.b64encode(message.payload).decode(),
        "contentTopic": message.content_topic,
        **{name: value for name, value in optional.items() if name not in unset},
        **({"meta": base64.b64encode(message.meta).decode()} if message.meta else {}),
        "ephemeral": None if "ephemeral" in unset else message.ephemeral,
    }


def _check_field(name: str, value: object) -> None:
    field, json_kind = _FIELDS[name], kind(value)
    if json_kind == field.kind == "number":
        if isinstance(value, int) and field.bounds and value in field.bounds:
            return
        json_kind = f"number {value}"  # Go quotes a number that does not fit, and no other value
    elif json_kind == field.kind:
        return
    raise ValueError(
        f"json: cannot unmarshal {json_kind} into Go struct field RestWakuMessage.{name} of type {field.go_type}"
    )


def _payload(text: str) -> bytes:
    return parse_base64(text, url_safe="-" in text or "_" in text, padded=len(text) % 4 == 0)


def _parse_integer(name: str, pattern: str, least: int, most: int, text: str) -> int:
    if not re.fullmatch(pattern, text):
        raise ValueError(f'strconv.{name}: parsing "{text}": invalid syntax')
    if len(text) > len(str(UINT64_MAX)) or not least <= int(text) <= most:
        raise ValueError(f'strconv.{name}: parsing "{text}": value out of range')
    return int(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"invalid character '{name[0]}' looking for beginning of value")
