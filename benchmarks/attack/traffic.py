"""Traffic: messages of a kind, and the properties of a flood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from benchmarks.made import Made

if TYPE_CHECKING:
    from benchmarks.attack.world import World

#: A message as the parts that it travels in.
Message = tuple[Made, ...]


class Power(Enum):
    """What a stranger on an open network can do."""

    PUBLISH = "publish anything"
    REPEAT = "repeat what was seen"
    CHANGE = "copy with changes"
    REGISTER = "register"
    QUERY = "query"
    PUSH = "push with a public token"


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Messages of a kind."""

    name: str
    #: Makes so many in a world, another set each time.
    make: Callable[[World, int], list[Message]]
    #: Messages at once.
    most: int = 10_000
    #: Whether deriving keys of query topics is of their cost.
    derives: bool = False


@dataclass(frozen=True, kw_only=True)
class Flood(Traffic):
    """What a stranger sends."""

    power: Power
    #: The kind of honest message that it is compared with.
    honest: str
    #: Whether what it stores is what the server is there to store.
    purpose: bool = False


def flat(messages: Sequence[Message]) -> list[Made]:
    """Return the parts of messages, as they are sent."""
    return [part for message in messages for part in message]


def size(message: Message) -> int:
    """Return the bytes of a message."""
    return sum(part.bytes for part in message)
