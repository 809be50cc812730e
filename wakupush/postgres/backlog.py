"""How many deliveries wait, read at a bounded cost."""

from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from wakupush.model.platforms import Platform
from wakupush.postgres.named_sql import load

_SQL = load("backlog")

#: The most rows of a platform to count; if there are more, this is the figure.
MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class DeliveryBacklog:
    """The unfinished deliveries of a platform."""

    platform: Platform
    #: Waiting for their next attempt.
    pending: int
    #: Pending deliveries whose time has come.
    due: int
    #: Seconds for which the longest due delivery has been due; 0 if none is due.
    due_age: float
    #: Under a lease: being posted, or left behind by a worker that died.
    posting: int


def count_deliveries(connection: Connection) -> list[DeliveryBacklog]:
    """Count the waiting deliveries of each platform; counts stop at `MOST`."""
    rows = connection.execute(_SQL["waiting"], {"platforms": [platform.value for platform in Platform], "most": MOST})
    return [
        DeliveryBacklog(Platform(platform), pending=pending, due=due, due_age=max(0.0, due_age), posting=posting)
        for platform, pending, due, due_age, posting in rows
    ]
