"""How device tokens fare on the platforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wakupush.model.platforms import Platform


@dataclass(frozen=True, slots=True)
class TokenShare:
    """What came of the tokens of a platform in some stretch of time."""

    platform: Platform
    tried: int
    bad: int
