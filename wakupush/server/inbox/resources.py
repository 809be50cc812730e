"""What messages are handled with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from wakupush.model.notifications import NotificationType
from wakupush.redis.limits import Limiter
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.resources import DeliveryResources, delivery_connected
from wakupush.server.delivery.retry import times_to_live
from wakupush.server.inbox.followers import Followers
from wakupush.server.inbox.later import Later
from wakupush.server.inbox.silence import Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxResources(DeliveryResources):
    """All that a worker has."""

    limiter: Limiter
    #: How long answers waited for posts, and the thread that holds back answers that had no post to wait for.
    latencies: Latencies
    later: Later
    followers: Followers
    #: Seconds after which deliveries expire.
    times_to_live: Mapping[NotificationType, float]

    @classmethod
    def open(cls, settings: Settings, node: str | None = None) -> Self:
        """Open everything; see `DeliveryResources.open`."""
        resources = delivery_connected(settings, node)
        return cls(
            **resources,
            limiter=Limiter(resources["redis"]),
            latencies=Latencies(),
            later=Later(),
            followers=Followers(),
            times_to_live=times_to_live(settings.delivery),
        )

    def close(self) -> None:
        """Follow up what is committed, publish answers that are held back, each at its time; then close all."""
        self.followers.close()
        self.later.close()
        DeliveryResources.close(self)
