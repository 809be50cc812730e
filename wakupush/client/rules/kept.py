"""Small documents that a client stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from wakupush.client.documents import Hex, document


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What is switched on, and the identity of this installation."""

    installation_id: str = ""
    #: In anonymous mode: the private key that registers, 32 bytes; else empty.
    push_key: Hex = field(repr=False, default=b"")
    #: Whether servers may be asked for pushes to others.
    sending: bool = False


@document
@dataclass(frozen=True, slots=True)
class Advertising:
    """When to advertise next."""

    #: In seconds since the epoch; None while there is nothing to advertise.
    next_at: float | None = None


@document
@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message that was received; its id is the document's name."""
