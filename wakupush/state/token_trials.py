"""How many device tokens were tried on each platform, and how many of them turned out bad."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wakupush.protocol.registration import TokenType
from wakupush.state.named_sql import columns, load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import Connection

_SQL = load("token_trials")
#: Seconds that are counted together.
PERIOD_SECONDS: Final = 600
#: Seconds of the whole window, and of its end: a platform that was well all day shows there that it no longer is.
WINDOW_SECONDS: Final = 86_400.0
RECENT_SECONDS: Final = 1_200.0
#: Rows for a platform and a period: transactions that commit at the same time seldom meet in one.
_SLOTS: Final = 16


@dataclass(frozen=True, slots=True)
class Share:
    """What came of the tokens of a platform in some stretch of time."""

    platform: TokenType
    tried: int
    bad: int


def count(connection: Connection, trials: Iterable[tuple[TokenType, bool, bool]]) -> None:
    """Count tokens: their platforms, whether they are tried now, and whether they are bad.

    To be the last statement of its transaction: others may wait for the row.
    """
    tried: Counter[TokenType] = Counter()
    bad: Counter[TokenType] = Counter()
    for platform, is_tried, is_bad in trials:
        tried[platform] += is_tried
        bad[platform] += is_bad
    rows = [{"platform": platform, "tried": tried[platform], "bad": bad[platform]} for platform in sorted(tried)]
    if rows:
        connection.execute(_SQL["count"], columns(rows) | {"period": PERIOD_SECONDS, "slots": _SLOTS})


def shares(connection: Connection) -> list[Share]:
    """Return the shares of each platform: over the whole window, and over its end."""
    rows = connection.execute(_SQL["shares"], {"window": WINDOW_SECONDS, "recent": RECENT_SECONDS}).fetchall()
    return [Share(TokenType(platform), *numbers) for platform, *counts in rows for numbers in (counts[:2], counts[2:])]
