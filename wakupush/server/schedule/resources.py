"""What the schedule works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from wakupush.runtime.settings import Settings
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.resources import Resources, connected


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleResources(Resources):
    """Resources, with what says which deliveries may be tried. They hold no key and do not know gorush."""

    breaker: Breaker

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open everything; see `Resources.open`."""
        resources = connected(settings)
        return cls(**resources, breaker=Breaker(resources["redis"], settings.breaker, settings.delivery.lease))
