"""The events of a message, as operators look for them."""

from datetime import datetime

from psycopg import Connection

from wakupush.model.dead_letters import PastEvent
from wakupush.postgres import dead_letters
from wakupush.runtime.settings import Settings
from wakupush.server.engine.identity import load_identity


def past_events(
    settings: Settings, connection: Connection, trace_id: str | None, seen_at: datetime
) -> list[PastEvent] | None:
    """Return the events of a message, the oldest first; None if they cannot be found without the server's key.

    Args:
        trace_id: of the message, None if it is not known any more.
        seen_at: when ingest saw it.

    Raises:
        NoIdentityError: the settings name a key that cannot be read.
    """
    if trace_id is None:
        return []
    # Code of the previous release wrote the message's own.
    trace_ids = [trace_id]
    has_key = settings.identity_key is not None or settings.identity_key_file is not None
    if has_key:
        trace_ids.append(load_identity(settings).event_trace_id(trace_id))
    events = dead_letters.past(connection, trace_ids, seen_at)
    return events if events or has_key else None
