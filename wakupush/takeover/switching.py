"""``wakupush shadow end``: lets this server answer and push, in place of the one that was stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wakupush.postgres import shadow
from wakupush.takeover.errors import TakeoverError

if TYPE_CHECKING:
    from psycopg import Connection

#: Messages seen in these last seconds before the other server was stopped are answered here too: it may have read them
#: without handling them. Requests that it has pushed are known by their ids once its database is imported; without that
#: import they are pushed twice.
MARGIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Switched:
    """The result of the switch."""

    #: Messages seen since this time are answered and pushed, in seconds since the epoch.
    answers_since: float
    #: Messages from before the switch that are answered now, and those that are left to the other server.
    answered: int
    left: int
    #: Seconds after `answers_since` of which no messages are kept any more.
    lost_seconds: float


def end(connection: Connection, stopped_at: float, *, now: float, keep: float) -> Switched:
    """End the shadow for all processes at once; beat enqueues what is to be answered.

    Args:
        connection: in autocommit mode.
        stopped_at: when the other server was stopped, in seconds since the epoch.
        now: the present time, in seconds since the epoch.
        keep: seconds for which messages are kept.

    Raises:
        TakeoverError: there is no shadow to end, or `stopped_at` is in the future.
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
            raise TakeoverError("another command has just ended the shadow")
        answered = shadow.count_since(connection, answers_since)
    lost = max(0.0, now - keep - max(answers_since, state.begun))
    return Switched(answers_since, answered, left, lost)
