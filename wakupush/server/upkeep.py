"""Upkeep that needs the server's key, which the schedule lacks: a worker does it in steps, while the server runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from wakupush.postgres import unsealed
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from wakupush.server.delivery.resources import DeliveryResources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds after which the next task goes on.
TASK_SECONDS: Final = 2.0
#: Rows of a table that one transaction seals at most; a registration can have a megabyte.
STEP_ROWS: Final = 50


def seal_rows(resources: DeliveryResources) -> int:
    """Spend some time sealing rows that older code wrote, and return how many."""
    until = time.monotonic() + TASK_SECONDS
    rows = 0
    while time.monotonic() < until:
        with resources.pool.connection() as connection:
            sealed = unsealed.seal(connection, resources.identity.at_rest, most=STEP_ROWS)
        metrics.ROWS_SEALED.inc(sealed)
        rows += sealed
        if not sealed:
            break
    log.info("rows_sealed", rows=rows)
    return rows
