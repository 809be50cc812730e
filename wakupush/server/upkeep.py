"""Upkeep that needs the server's key, which the schedule lacks: a worker does it in steps, while the server runs."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from wakupush.postgres import packed_requests, unsealed
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import Counter
    from psycopg import Connection

    from wakupush.protocol.at_rest import AtRest
    from wakupush.server.delivery.resources import DeliveryResources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds after which the next task goes on.
TASK_SECONDS: Final = 2.0
#: Rows of a table that one transaction seals at most; a registration can have a megabyte.
STEP_ROWS: Final = 50
#: Ids that one transaction packs at most, about: they are in memory, 100 bytes each.
STEP_IDS: Final = 250_000


def seal_rows(resources: DeliveryResources) -> int:
    """Spend some time sealing rows that older code wrote, and return how many."""
    rows = _in_steps(resources, partial(unsealed.seal, most=STEP_ROWS), metrics.ROWS_SEALED)
    log.info("rows_sealed", rows=rows)
    return rows


def pack_requests(resources: DeliveryResources) -> int:
    """Spend some time packing ids of push requests that are past their time, and return how many."""
    keep = resources.settings.retention.admitted_requests
    ids = _in_steps(resources, partial(packed_requests.pack, keep=keep, most=STEP_IDS), metrics.REQUESTS_PACKED)
    log.info("requests_packed", ids=ids)
    return ids


def _in_steps(resources: DeliveryResources, step: Callable[[Connection, AtRest], int], counter: Counter) -> int:
    """Take steps, each a transaction, until the task's time is over or one finds nothing; return what they did."""
    until = time.monotonic() + TASK_SECONDS
    total = 0
    while time.monotonic() < until:
        with resources.pool.connection() as connection:
            done = step(connection, resources.identity.at_rest)
        counter.inc(done)
        total += done
        if not done:
            break
    return total
