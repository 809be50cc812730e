"""How many deliveries wait, read at a bounded cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wakupush.protocol.registration import TokenType
from wakupush.state.named_sql import load

if TYPE_CHECKING:
    from psycopg import Connection

_SQL = load("backlog")

#: Rows of a platform that are counted at most; where there are more, this is the figure.
MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """The deliveries of a platform that are not done."""

    platform: TokenType
    #: For their next attempt.
    pending: int
    #: Those of them whose time has come.
    due: int
    #: Seconds for which the one that is longest due has been so; 0 if none is.
    due_age: float
    #: Under a lease: being posted, or left behind by a worker that died.
    posting: int


def waiting(connection: Connection) -> list[Waiting]:
    """Return what waits, by platform; counts stop at `MOST`."""
    rows = connection.execute(_SQL["waiting"], {"platforms": [platform.value for platform in TokenType], "most": MOST})
    return [
        Waiting(TokenType(platform), pending=pending, due=due, due_age=max(0.0, due_age), posting=posting)
        for platform, pending, due, due_age, posting in rows
    ]
