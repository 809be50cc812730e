"""What messages are handled with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from wakupush.postgres.old_code import OldCode
from wakupush.redis.limits import Limiter
from wakupush.server.delivery.resources import DeliveryResources, delivery_connected
from wakupush.server.delivery.retry import times_to_live

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wakupush.model.notifications import NotificationType
    from wakupush.runtime.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxResources(DeliveryResources):
    """All that a worker has."""

    limiter: Limiter
    #: Seconds after which deliveries expire.
    times_to_live: Mapping[NotificationType, float]
    old_code: OldCode = field(default_factory=OldCode)

    @classmethod
    def open(cls, settings: Settings, node: str | None = None) -> Self:
        """Open everything; see `DeliveryResources.open`."""
        return cls(
            **delivery_connected(settings, node),
            limiter=Limiter(settings.redis.url.get_secret_value(), settings.redis.timeout),
            times_to_live=times_to_live(settings.delivery),
        )
