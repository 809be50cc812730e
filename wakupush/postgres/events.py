"""Writing delivery events."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter

from psycopg import Connection, sql

from wakupush.model.events import FIELDS, SCHEMA_VERSION, Event
from wakupush.protocol.identity import Identity

_COPY = sql.SQL("COPY delivery_events ({}) FROM STDIN").format(
    sql.SQL(", ").join(map(sql.Identifier, ("schema_version", *FIELDS)))
)
_values = attrgetter(*FIELDS)
_TIME, _TRACE_ID = FIELDS.index("time"), FIELDS.index("trace_id")


def add(connection: Connection, events: Iterable[Event], identity: Identity) -> None:
    """Write events, in the transaction of their effect.

    Args:
        connection: in that transaction.
        events: with the trace ids of their messages.
        identity: makes the trace ids that are stored.
    """
    # A message has several events.
    stored_trace_id = cache(identity.event_trace_id)
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        for event in events:
            values = list(_values(event))
            values[_TIME] = datetime.fromtimestamp(event.time, UTC)
            values[_TRACE_ID] = stored_trace_id(event.trace_id) if event.trace_id else None
            copy.write_row((SCHEMA_VERSION, *values))
