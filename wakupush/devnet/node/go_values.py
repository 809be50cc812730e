"""Reading values from text as Go's standard library does, with its error texts.

go-waku sends these texts to its clients. Every function raises ValueError with them.
"""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from wakupush.model.waku_message import INT64_MAX, INT64_MIN

UINT64_MAX = 2**64 - 1

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


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


def _parse_integer(name: str, pattern: str, least: int, most: int, text: str) -> int:
    if not re.fullmatch(pattern, text):
        raise ValueError(f'strconv.{name}: parsing "{text}": invalid syntax')
    if len(text) > len(str(UINT64_MAX)) or not least <= int(text) <= most:
        raise ValueError(f'strconv.{name}: parsing "{text}": value out of range')
    return int(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"invalid character '{name[0]}' looking for beginning of value")
