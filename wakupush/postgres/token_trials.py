"""How many device tokens were tried on each platform, and how many of them turned out bad."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from wakupush.model.platforms import Platform
from wakupush.postgres.named_sql import columns, load

_SQL = load("token_trials")
#: Seconds that are counted together.
PERIOD_SECONDS: Final = 600
#: Seconds of the whole window, and of its end, which shows when a platform that was well all day no longer is.
WINDOW_SECONDS: Final = 86_400.0
RECENT_SECONDS: Final = 1_200.0
#: Rows for a platform and a period: transactions that commit at the same time seldom meet in one.
_SLOTS: Final = 16


@dataclass(frozen=True, slots=True)
class TokenShare:
    """How many device tokens of a platform were tried within some time, and how many of them were bad."""

    platform: Platform
    tried: int
    bad: int


def count(connection: Connection, trials: Iterable[tuple[Platform, bool, bool]]) -> None:
    """Count tokens: their platforms, whether they are tried now, and whether they are bad.

    To be the last statement of its transaction: others may wait for the row.
    """
    uses: Counter[Platform] = Counter()
    bad: Counter[Platform] = Counter()
    for platform, is_tried, is_bad in trials:
        uses[platform] += is_tried
        bad[platform] += is_bad
    rows = [{"platform": platform, "tried": uses[platform], "bad": bad[platform]} for platform in sorted(uses)]
    if rows:
        connection.execute(_SQL["count"], columns(rows) | {"period": PERIOD_SECONDS, "slots": _SLOTS})


def shares(connection: Connection) -> list[TokenShare]:
    """Return the shares of each platform: over the whole window, and over its end."""
    rows = connection.execute(_SQL["shares"], {"window": WINDOW_SECONDS, "recent": RECENT_SECONDS}).fetchall()
    return [
        TokenShare(Platform(platform), *numbers) for platform, *counts in rows for numbers in (counts[:2], counts[2:])
    ]
