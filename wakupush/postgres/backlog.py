"""How many deliveries wait, and how many events wait for the export, and when jobs last ran, read at a bounded cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres.named_sql import load

_SQL = load("backlog")

#: The most rows to count of an app and platform, and of events; if there are more, this is the figure.
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


@dataclass(frozen=True, slots=True)
class ExportBacklog:
    """The events that the lake is still to get."""

    #: Since the first of them; 0 if there is none.
    seconds: float
    #: `MOST` if there are more.
    rows: int


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """The last run of a job of the pipeline that ended well."""

    job: str
    #: Seconds since the epoch.
    ended_at: float
    #: For which it ran.
    seconds: float


def pipeline_runs(connection: Connection) -> list[PipelineRun]:
    """Return the last run of each job of the pipeline; none if their catalog is elsewhere."""
    return [PipelineRun(*row) for row in connection.execute(_SQL["pipeline_runs"])]


def export_backlog(connection: Connection) -> ExportBacklog | None:
    """Return what the export has yet to take; None if nothing exports."""
    row = connection.execute(_SQL["export"], {"most": MOST}).fetchone()
    return None if row is None else ExportBacklog(max(0.0, row[0]), row[1])


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
