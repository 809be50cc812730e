"""The documents that a client stores: frozen dataclasses as JSON, keys and bytes as hex."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar

from wakupush.model.failures import Answer
from wakupush.protocol.keys import PublicKey

T = TypeVar("T")


@dataclass(frozen=True)
class _Text:
    """How pydantic reads and writes an annotated field: as a text in JSON."""

    parse: Callable[[str], object]
    write: Callable[[Any], str]

    def __get_pydantic_core_schema__(self, source: type, _handler: object) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - see `DocumentKind`

        def read(value: object) -> object:
            return value if isinstance(value, source) else self.parse(str(value))

        writing = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(read, serialization=writing)


#: A public key, ``0x04…`` in JSON.
Key = Annotated[PublicKey, _Text(PublicKey.from_hex, str)]
#: Bytes, hex in JSON.
Hex = Annotated[bytes, _Text(bytes.fromhex, bytes.hex)]
#: A server's answer; in JSON it is the answer's name.
AnswerName = Annotated[Answer, _Text(Answer.__getitem__, lambda answer: answer.name)]


def document(of: type[T]) -> type[T]:
    """Let pydantic refuse, not drop, a field that a later version has added: a decorator for each stored dataclass."""
    of.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]  # pydantic's name for it
    return of


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
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter  # noqa: PLC0415 - it takes as long as all else that an app imports of us

        return TypeAdapter(self._of)

    def dump(self, value: T) -> str:
        """Return a value as JSON."""
        text: bytes = self._adapter.dump_json(value)
        return text.decode()

    def load(self, text: str) -> T:
        """Return the value that `dump` wrote.

        Raises:
            UnreadableError: it was not written by this version or an earlier one.
        """
        try:
            value: T = self._adapter.validate_json(text)
        except (ValueError, KeyError):
            raise UnreadableError(f"the stored {self.name} cannot be read") from None
        return value
