"""Dead device tokens, for an operator: how many died lately, and bringing back those that died by mistake."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Connection

from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres.named_sql import load

_SQL = load("dead_tokens")
#: Rows that are counted, and changed by a statement.
MOST_COUNTED: Final = 100_000
CHUNK_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Deaths:
    """The tokens of an app and platform that died within the last day, and within the last hour."""

    day: int
    hour: int


def count(connection: Connection) -> dict[AppPlatform, Deaths]:
    """Count the tokens that died within the last day, of all apps and platforms at most `MOST_COUNTED`."""
    rows = connection.execute(_SQL["count"], {"most": MOST_COUNTED}).fetchall()
    return {AppPlatform(app, Platform(platform)): Deaths(day, hour) for app, platform, day, hour in rows}


def revive(connection: Connection, app_platforms: Collection[AppPlatform], since: datetime, until: datetime) -> int:
    """Bring back tokens that died within a time, at most `CHUNK_ROWS`, the earliest deaths first; return how many.

    The caller commits each time, and goes on until none is left.
    """
    values = _columns(app_platforms) | {"since": since, "until": until, "most": CHUNK_ROWS}
    return connection.execute(_SQL["revive"], values).rowcount


def forget_trials(connection: Connection, app_platforms: Collection[AppPlatform]) -> None:
    """Delete the counts of good and bad tokens by which the brake decides."""
    connection.execute(_SQL["forget_trials"], _columns(app_platforms))


def _columns(app_platforms: Collection[AppPlatform]) -> dict[str, Any]:
    """Return the apps and the platforms: all combinations of them are meant."""
    return {
        "apps": sorted({one.app for one in app_platforms}),
        "platforms": sorted({int(one.platform) for one in app_platforms}),
    }
