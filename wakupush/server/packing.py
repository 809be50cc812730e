"""Packing ids of old push requests, while the server runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from wakupush.postgres import packed_requests
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from wakupush.server.delivery.resources import DeliveryResources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Ids that one transaction packs at most, about: they are in memory, 100 bytes each.
STEP_IDS: Final = 250_000
#: Seconds after which the next task goes on.
TASK_SECONDS: Final = 2.0


def pack_requests(resources: DeliveryResources) -> int:
    """Pack ids that are past their time for a while, and return how many."""
    keep = resources.settings.retention.admitted_requests
    until = time.monotonic() + TASK_SECONDS
    ids = 0
    while time.monotonic() < until:
        with resources.pool.connection() as connection:
            packed = packed_requests.pack(connection, resources.identity.at_rest, keep=keep, most=STEP_IDS)
        metrics.REQUESTS_PACKED.inc(packed)
        ids += packed
        if not packed:
            break
    log.info("requests_packed", ids=ids)
    return ids
