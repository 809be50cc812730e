"""What deliveries are attempted with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from wakupush.gorush.client import Gorush
from wakupush.gorush.instances import Instances, open_gorush
from wakupush.protocol.identity import Identity
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.delivery.flower import TaskEvents
from wakupush.server.delivery.lanes import Caution, Lanes, Slots
from wakupush.server.identity import load_identity
from wakupush.server.resources import Resources, connected


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResources(Resources):
    """Resources, with the key and the way to gorush."""

    identity: Identity
    gorush: Gorush | Instances
    breaker: Breaker
    #: For posts to gorush, some of which stay open longer than the task that made them.
    lanes: Lanes
    task_events: TaskEvents

    @classmethod
    def open(cls, settings: Settings, node: str | None = None) -> Self:
        """Open everything. Postgres, Redis, the node and gorush may be down meanwhile.

        Args:
            settings: with a private key.
            node: the name of the worker in Celery.

        Raises:
            NoIdentityError: there is no private key.
            SettingsError: an address is not valid.
        """
        return cls(**delivery_connected(settings, node))

    def close(self) -> None:
        """Wait for open posts, then close all connections."""
        self.lanes.slots.close()
        self.task_events.close()
        self.gorush.close()
        Resources.close(self)


def delivery_connected(settings: Settings, node: str | None) -> dict[str, Any]:
    """Return the fields of `DeliveryResources`, by name."""
    resources = connected(settings)
    # A post that outlives its lease is taken for one whose process died.
    breaker = Breaker(resources["redis"], settings.breaker, settings.delivery.lease)
    return resources | {
        "identity": load_identity(settings),
        "gorush": open_gorush(settings.gorush),
        "breaker": breaker,
        "lanes": Lanes(Slots(settings.gorush.concurrency), breaker, Caution()),
        "task_events": TaskEvents(resources["app"], node, settings.delivery.max_attempts),
    }
