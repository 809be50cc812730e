"""Writing delivery events."""

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import attrgetter

from psycopg import Connection, sql

from wakupush.model.events import FIELDS, SCHEMA_VERSION, Event

_COPY = sql.SQL("COPY delivery_events ({}) FROM STDIN").format(
    sql.SQL(", ").join(map(sql.Identifier, ("schema_version", *FIELDS)))
)
_values = attrgetter(*FIELDS)
_TIME = FIELDS.index("time")


def add(connection: Connection, events: Iterable[Event]) -> None:
    """Write events, in the transaction of their effect."""
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        for event in events:
            values = list(_values(event))
            values[_TIME] = datetime.fromtimestamp(event.time, UTC)
            copy.write_row((SCHEMA_VERSION, *values))
