"""How many device tokens were tried for each app and platform, and how many of them turned out bad."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres.named_sql import columns, load

_SQL = load("token_trials")
#: Seconds that are counted together.
PERIOD_SECONDS: Final = 600
#: Seconds of the whole window, and of its end, which shows when a platform that was well all day no longer is.
WINDOW_SECONDS: Final = 86_400.0
RECENT_SECONDS: Final = 1_200.0
#: Rows for an app, a platform and a period: transactions that commit at the same time seldom meet in one.
_SLOTS: Final = 16


@dataclass(frozen=True, slots=True)
class TokenShare:
    """How many device tokens of an app and platform were tried within some time, and how many of them were bad."""

    app_platform: AppPlatform
    tried: int
    bad: int


def count(connection: Connection, trials: Iterable[tuple[AppPlatform, bool, bool]]) -> None:
    """Count tokens: their apps and platforms, whether they are tried now, and whether they are bad.

    To be the last statement of its transaction: others may wait for the row.
    """
    uses: Counter[AppPlatform] = Counter()
    bad: Counter[AppPlatform] = Counter()
    for app_platform, is_tried, is_bad in trials:
        uses[app_platform] += is_tried
        bad[app_platform] += is_bad
    rows = [{"app": one.app, "platform": one.platform, "tried": uses[one], "bad": bad[one]} for one in sorted(uses)]
    if rows:
        connection.execute(_SQL["count"], columns(rows) | {"period": PERIOD_SECONDS, "slots": _SLOTS})


def shares(connection: Connection) -> list[TokenShare]:
    """Return the shares of each app and platform: over the whole window, and over its end."""
    rows = connection.execute(_SQL["shares"], {"window": WINDOW_SECONDS, "recent": RECENT_SECONDS}).fetchall()
    return [
        TokenShare(AppPlatform(app, Platform(platform)), *numbers)
        for app, platform, *counts in rows
        for numbers in (counts[:2], counts[2:])
    ]
