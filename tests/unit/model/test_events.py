"""Events that are alike are put together, and one tells of what must have happened before it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.model.events import FIELDS, Event, EventKind, history, merge_alike

REFUSED = Event(kind=EventKind.REFUSED, time=1.0, worker="w", trace_id="t", failure="wrong_token", latency=2.0)
OTHERS = {
    "kind": EventKind.FILTERED,
    "time": 2.0,
    "worker": "v",
    "trace_id": None,
    "queue": "query",
    "shard": 32,
    "app": "nightly",
    "platform": "ios",
    "push_type": "mention",
    "failure": "not_registered",
    "reason": "disabled",
    "attempt": 1,
    "batch_size": 2,
    "key_pseudonym": b"k",
    "installation_pseudonym": b"i",
}
events = st.builds(
    Event,
    kind=st.sampled_from([EventKind.RECEIVED, EventKind.FOREIGN]),
    time=st.just(1.0),
    worker=st.just("w"),
    trace_id=st.sampled_from([None, "a"]),
    count=st.integers(1, 5),
    queue_wait=st.sampled_from([None, 0.0, 1.5]),
    latency=st.sampled_from([None, 0.0, 2.5]),
)


def test_only_events_that_differ_in_waits_merge():
    assert OTHERS.keys() == {*FIELDS} - {"count", "queue_wait", "age", "latency"}
    different = [REFUSED, *(replace(REFUSED, **{name: value}) for name, value in OTHERS.items())]
    assert merge_alike(different) == different


def test_what_is_alike_is_one_with_the_longest_waits():
    three = [REFUSED, replace(REFUSED, latency=9.0, count=4), replace(REFUSED, latency=None, queue_wait=1.0, age=0.1)]
    assert merge_alike(three) == [replace(REFUSED, count=6, latency=9.0, queue_wait=1.0, age=0.1)]


@given(st.lists(events))
def test_nothing_is_lost_or_told_twice(events):
    merged_events = merge_alike(events)
    assert merge_alike(merged_events) == merged_events
    for kind in EventKind:
        assert sum(e.count for e in merged_events if e.kind is kind) == sum(e.count for e in events if e.kind is kind)
    assert len({(event.kind, event.trace_id) for event in merged_events}) == len(merged_events)


@pytest.mark.parametrize(
    ("kind", "fields", "lines"),
    [
        (EventKind.ANSWERED, {"queue_wait": 0.0}, ["received", "opened", "answered"]),
        (EventKind.ANSWERED, {}, ["answered"]),  # a correction
        (EventKind.REFUSED, {"queue_wait": 1.0}, ["received", "opened", "refused"]),
        (EventKind.REFUSED, {}, ["refused"]),  # a notification
        (EventKind.EXPIRED, {"queue_wait": 1.0}, ["received", "opened", "expired"]),
        (EventKind.EXPIRED, {}, ["expired"]),  # a delivery
        (EventKind.REGISTERED, {"queue_wait": 1.0}, ["received", "opened", "registered", "answered"]),
        (EventKind.UNREGISTERED, {"queue_wait": 1.0}, ["received", "opened", "unregistered", "answered"]),
        (EventKind.RECEIVED, {"queue_wait": 1.0}, ["received"]),
        (EventKind.FOREIGN, {"batch_size": 7}, ["foreign"]),
        (EventKind.DELIVERED, {"batch_size": 7}, ["attempt", "delivered"]),
        (EventKind.UNKNOWN, {"batch_size": 1}, ["attempt", "unknown"]),
        (EventKind.FAILED, {"batch_size": 1}, ["attempt", "failed"]),
        (EventKind.FAILED, {}, ["failed"]),  # told by gorush's webhook, later
        (EventKind.DEAD_LETTER, {"batch_size": 1}, ["dead_letter"]),
    ],
)
def test_events_imply_earlier_events(kind, fields, lines):
    event = Event(kind=kind, time=1.0, worker="w", trace_id="t", **fields)
    assert [str(each) for each in history(event)] == lines
