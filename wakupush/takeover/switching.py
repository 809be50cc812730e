"""``wakupush shadow end``: from when on this server answers and pushes, in the place of the one that was stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wakupush.postgres import shadow
from wakupush.takeover.errors import TakeoverError

if TYPE_CHECKING:
    from psycopg import Connection

#: Seconds before the other server was stopped from which on what was seen is answered here: it may have read it, and
#: not have come to it. Once its database is imported, what it pushed is known by its id; else so much is pushed twice.
MARGIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Switched:
    """What comes of the switch."""

    #: From when on what was seen is answered and pushed, in seconds since the epoch.
    answers_since: float
    #: Messages of before the switch that are answered now, and those that the other server answered.
    answered: int
    left: int
    #: Seconds from that time on of which nothing is kept any more.
    lost_seconds: float


def end(connection: Connection, stopped_at: float, *, now: float, keep: float) -> Switched:
    """End the shadow, for all processes at once; beat enqueues what is to be answered.

    Args:
        connection: in autocommit mode.
        stopped_at: when the other server was stopped, in seconds since the epoch.
        now: the same of now.
        keep: seconds for which messages are kept.

    Raises:
        TakeoverError: there is no shadow to end, or it was stopped at no such time.
    """
    state = shadow.state(connection)
    if state is None:
        raise TakeoverError("this server is not in shadow: no process of it was started with WAKUPUSH_SHADOW=true")
    if state.ended is not None:
        raise TakeoverError("the shadow has ended: this server answers and pushes")
    if stopped_at > now:
        raise TakeoverError("that time is to come: stop the reference server first, and say when that was")
    answers_since = stopped_at - MARGIN_SECONDS
    with connection.transaction():
        left = shadow.end(connection, answers_since)
        if left is None:
            raise TakeoverError("somebody else has just ended the shadow")
        answered = shadow.count_since(connection, answers_since)
    lost = max(0.0, now - keep - max(answers_since, state.begun))
    return Switched(answers_since, answered, left, lost)
