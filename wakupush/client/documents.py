"""The documents that a client stores: frozen dataclasses as JSON, keys and bytes as hex."""

from functools import cached_property
from typing import Annotated, Generic, TypeVar

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter, ValidationError, with_config

from wakupush.model.failures import Answer
from wakupush.protocol.keys import PublicKey

T = TypeVar("T")


def _key(value: object) -> PublicKey:
    return value if isinstance(value, PublicKey) else PublicKey.from_hex(str(value))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else bytes.fromhex(str(value))


def _answer(value: object) -> Answer:
    return value if isinstance(value, Answer) else Answer[str(value)]


#: A public key, ``0x04…`` in JSON.
Key = Annotated[PublicKey, PlainValidator(_key), PlainSerializer(str)]
#: Bytes, hex in JSON.
Hex = Annotated[bytes, PlainValidator(_bytes), PlainSerializer(bytes.hex)]

#: A server's answer; in JSON it is the answer's name.
AnswerName = Annotated[Answer, PlainValidator(_answer), PlainSerializer(lambda answer: answer.name)]


#: Decorator for each dataclass that is stored: a field that a later version has added is refused, not dropped.
document = with_config(ConfigDict(extra="forbid"))


class UnreadableError(Exception):
    """A document was written by a later version, or changed since. The error's text quotes nothing of it."""


class DocumentKind(Generic[T]):
    """A kind of document.

    Args:
        name: never to be changed, as stored documents are found by it.
        of: a frozen dataclass.
    """

    def __init__(self, name: str, of: type[T]) -> None:
        self.name = name
        self._of = of

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        """Pydantic's adapter, built at its first use: to build all five would take a tenth of this package's import."""
        return TypeAdapter(self._of)

    def dump(self, value: T) -> str:
        """Return a value as JSON."""
        return self._adapter.dump_json(value).decode()

    def load(self, text: str) -> T:
        """Return the value that `dump` wrote.

        Raises:
            UnreadableError: it was not written by this version or an earlier one.
        """
        try:
            return self._adapter.validate_json(text)
        except (ValidationError, KeyError):
            raise UnreadableError(f"the stored {self.name} cannot be read") from None
