"""How device tokens fare on the platforms."""

from __future__ import annotations

from dataclasses import dataclass

from wakupush.model.platforms import Platform


@dataclass(frozen=True, slots=True)
class TokenShare:
    """How many device tokens of a platform were tried within some time, and how many of them were bad."""

    platform: Platform
    tried: int
    bad: int
