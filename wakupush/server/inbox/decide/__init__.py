"""Deciding on messages: pure folds over messages and facts, one module for each kind.

Each message sees the facts as those before it left them. A decision names the limits that it was counted for; it is
made once as if all of them allowed it, and once more where one does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wakupush.model.limits import Limit


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Which limits allow what was counted."""

    told: Mapping[Limit, bool] = field(default_factory=dict)
    #: Of limits that were not asked.
    otherwise: bool = True

    def allow(self, limit: Limit) -> bool:
        """Say whether a limit allows it."""
        return self.told.get(limit, self.otherwise)
