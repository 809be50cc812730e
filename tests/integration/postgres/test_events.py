"""Events come back as they were written, with all that they tell of."""

from support.deciding import IDENTITY
from support.rows import NOW
from wakupush.model.events import FIELDS, OUTCOMES, Event, EventKind, history
from wakupush.postgres import events


def test_events_come_back_as_they_were_written(connection):
    full = Event(
        kind=EventKind.FAILED, time=NOW.timestamp(), worker="w", trace_id="t\\\t\n", count=7, queue="dispatch",
        queue_wait=0.5, shard=32, age=0.5, latency=1.5, app="app", platform="ios",
        push_type="message", failure="rate_limited", reason=None, attempt=2, batch_size=50,
        key_pseudonym=b"\x00\x01" * 8, installation_pseudonym=b"\xff" * 16,
    )  # fmt: skip
    events.add(
        connection, [full, Event(kind=EventKind.RECEIVED, time=NOW.timestamp(), worker="w", trace_id="t")], IDENTITY
    )
    rows = connection.execute(f"SELECT {', '.join(FIELDS)} FROM delivery_events ORDER BY id").fetchall()
    expected_values = {"time": NOW, "trace_id": IDENTITY.event_trace_id(full.trace_id)}
    assert rows[0] == tuple(expected_values.get(name, getattr(full, name)) for name in FIELDS)
    assert rows[1][4:] == (1, *[None] * (len(FIELDS) - 5))


def test_history_has_a_row_for_each_event(connection):
    """Older events stand there as they are."""
    of_message, of_attempt = {"queue_wait": 0.5, "batch_size": 3}, {"batch_size": 3}
    of_message |= {"shard": 32, "age": 0.5}
    whom = {"platform": "ios", "failure": "rate_limited", "reason": "disabled", "key_pseudonym": b"k" * 16}
    whom |= {"push_type": "mention"}
    all_events = [
        Event(kind=kind, time=NOW.timestamp(), worker="w", trace_id="t", count=2, **whom, **each)
        for kind in set(EventKind) - {EventKind.OPENED}
        for each in ({}, of_attempt if kind in OUTCOMES else of_message)
    ]
    events.add(connection, all_events, IDENTITY)
    history_of = (
        "SELECT kind, queue_wait, shard, age, count, num_nonnulls({}) FROM delivery_history ORDER BY id, step".format(
            ", ".join(whom)
        )
    )
    rows = connection.execute(history_of).fetchall()
    assert rows == [
        (
            kind,
            *(getattr(event, name) if kind is EventKind.RECEIVED else None for name in ("queue_wait", "shard", "age")),
            2,
            len(whom) if kind in {event.kind, EventKind.ATTEMPT} else 0,
        )
        for event in all_events
        for kind in history(event)
    ]
