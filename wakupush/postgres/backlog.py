"""How many deliveries wait, read at a bounded cost."""

from __future__ import annotations

from typing import Final

from psycopg import Connection

from wakupush.model.backlog import DeliveryBacklog
from wakupush.model.platforms import Platform
from wakupush.postgres.named_sql import load

_SQL = load("backlog")

#: Rows of a platform that are counted at most; if there are more, this is the figure.
MOST: Final = 100_000


def waiting(connection: Connection) -> list[DeliveryBacklog]:
    """Return what waits, by platform; counts stop at `MOST`."""
    rows = connection.execute(_SQL["waiting"], {"platforms": [platform.value for platform in Platform], "most": MOST})
    return [
        DeliveryBacklog(Platform(platform), pending=pending, due=due, due_age=max(0.0, due_age), posting=posting)
        for platform, pending, due, due_age, posting in rows
    ]
