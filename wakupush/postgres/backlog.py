"""How many deliveries wait, read at a bounded cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres.named_sql import load

_SQL = load("backlog")

#: The most rows of an app and platform to count; if there are more, this is the figure.
MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class DeliveryBacklog:
    """The unfinished deliveries of an app and platform."""

    app_platform: AppPlatform
    #: Waiting for their next attempt.
    pending: int
    #: Pending deliveries whose time has come.
    due: int
    #: Seconds for which the longest due delivery has been due; 0 if none is due.
    due_age: float
    #: Under a lease: being posted, or left behind by a worker that died.
    posting: int


def count_deliveries(connection: Connection, app_platforms: Sequence[AppPlatform]) -> list[DeliveryBacklog]:
    """Count the waiting deliveries of these apps and platforms, and of all others that have any.

    Counts stop at `MOST`.
    """
    columns = {"apps": [one.app for one in app_platforms], "platforms": [one.platform for one in app_platforms]}
    rows = connection.execute(_SQL["waiting"], {**columns, "most": MOST})
    return [
        DeliveryBacklog(
            AppPlatform(app, Platform(platform)), pending=pending, due=due, due_age=max(0.0, due_age), posting=posting
        )
        for app, platform, pending, due, due_age, posting in rows
    ]
