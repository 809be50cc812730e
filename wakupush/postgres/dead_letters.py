"""Dead letters: deliveries that ran out of attempts or of time, kept for an operator to look at and to send again."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg import Connection, Cursor, sql

from wakupush.model.dead_letters import DeadLetter, DeadLetterDevice, PastEvent, Position, Selection
from wakupush.model.deliveries import DeliveryState
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.postgres.named_sql import load, value

_SQL = load("dead_letters")
#: Bytes of a delivery key.
KEY_BYTES: Final = 32
#: Rows that are read or changed at once.
CHUNK_ROWS: Final = 1000
#: Dead letters of one failure that are counted: the job runs each minute, and an outage leaves millions.
MOST_COUNTED: Final = 100_000
#: The most events of one dead letter to show.
_MOST_EVENTS: Final = 200


def now(connection: Connection) -> datetime:
    """Return the time of the database."""
    time: datetime = value(connection, _SQL["now"])
    return time


def every(connection: Connection, selection: Selection, most: int) -> Iterator[list[DeadLetter]]:
    """Read the newest dead letters of a selection, `most` in all, in chunks with a statement each."""
    end: Position | None = None
    while most > 0:
        limit = min(most, CHUNK_ROWS)
        rows = _execute(connection, "page", selection, before=end, limit=limit).fetchall()
        page = [
            DeadLetter(key, DeliveryState(state), AppPlatform(app, Platform(platform)), *others)
            for key, state, app, platform, *others in rows
        ]
        if page:
            yield page
        if len(page) < limit:
            return
        most -= len(page)
        end = page[-1].finished_at, page[-1].delivery_key


def count(connection: Connection, selection: Selection) -> int:
    """Return how many dead letters a selection has."""
    return int(value(connection, *compose("count", selection)))


def retry(
    connection: Connection,
    selection: Selection,
    after: Position | None,
    *,
    time_to_live: Mapping[NotificationType, float],
) -> list[Position]:
    """Make dead letters due again, with all attempts and a new time to live; return their positions.

    At most `CHUNK_ROWS`, the oldest first. The caller commits each time, and goes on after the last position until none
    is left. The selection should end at a time in the past: then the command resends no delivery that dies again.

    Args:
        connection: beat enqueues them once that is committed.
        after: only those behind this position.
        time_to_live: seconds after which they expire, by the type of notification.
    """
    types, seconds = list(time_to_live), list(time_to_live.values())
    again = _execute(connection, "retry", selection, after=after, limit=CHUNK_ROWS, types=types, seconds=seconds)
    return sorted(again.fetchall())


def drop(connection: Connection, selection: Selection, after: Position | None) -> list[Position]:
    """Delete dead letters with their content, as `retry` does."""
    return sorted(_execute(connection, "drop", selection, after=after, limit=CHUNK_ROWS).fetchall())


def find(connection: Connection, prefix: str) -> list[bytes]:
    """Return the keys of dead letters with this prefix (hex digits, at least one), two at most."""
    digits = 2 * KEY_BYTES
    bounds = {"first": bytes.fromhex(prefix.ljust(digits, "0")), "last": bytes.fromhex(prefix.ljust(digits, "f"))}
    return [key for (key,) in connection.execute(_SQL["keys"], bounds)]


def device(connection: Connection, delivery_key: bytes) -> DeadLetterDevice | None:
    """Return the state of a dead letter's device now."""
    row = connection.execute(_SQL["device"], {"key": delivery_key}).fetchone()
    return DeadLetterDevice(*row) if row else None


def past(connection: Connection, trace_ids: Sequence[str], seen_at: datetime) -> list[PastEvent]:
    """Return the events of a message that was seen then, of all its notifications, the oldest first.

    Args:
        trace_ids: that events of the message may have.
    """
    since = seen_at - timedelta(minutes=1)
    values = {"trace_ids": list(trace_ids), "since": since, "limit": _MOST_EVENTS}
    return [PastEvent(*row) for row in connection.execute(_SQL["events"], values)]


def counts(connection: Connection) -> dict[tuple[AppPlatform, str], int]:
    """Return how many dead letters there are, by app, platform and the label of their failure.

    Of each failure at most `MOST_COUNTED` are counted.
    """
    rows = connection.execute(_SQL["counts"], {"most": MOST_COUNTED}).fetchall()
    return {(AppPlatform(app, Platform(platform)), reason or ""): number for app, platform, reason, number in rows}


def _execute(
    connection: Connection,
    name: str,
    selection: Selection,
    *,
    before: Position | None = None,
    after: Position | None = None,
    **values: Any,
) -> Cursor[Any]:
    query, conditions = compose(name, selection, before=before, after=after)
    return connection.execute(query, conditions | values)


def compose(
    name: str, selection: Selection, *, before: Position | None = None, after: Position | None = None
) -> tuple[sql.Composed, dict[str, Any]]:
    """Return a query with the conditions that a selection and a position make, and the values of those."""
    values = {
        "of_keys": selection.keys,
        "of_reason": selection.reason and selection.reason.label,
        "of_platform": selection.platform,
        "since": selection.since,
        "until": selection.until,
        "before": before,
        "after": after,
    }
    conditions = sql.SQL(" ").join(sql.SQL(_SQL[condition]) for condition, value in values.items() if value is not None)
    end_time, end_key = before or after or (None, None)
    return sql.SQL(_SQL[name]).format(conditions=conditions), values | {"end_time": end_time, "end_key": end_key}
