"""The topics on which users are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class QueryTopic:
    """A topic of a registered user; several users can share its 4 bytes."""

    #: Of the user, 64 bytes.
    key_hash: bytes
    #: Whether its name has ``0x`` before the key hash, as the specification writes it.
    prefixed: bool
    #: 32 bytes, None if not derived yet.
    symmetric_key: bytes | None = field(repr=False)
