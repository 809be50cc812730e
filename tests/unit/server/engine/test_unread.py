"""Deciding on what is not for us, cannot be read, or is a part of a message."""

from dataclasses import replace

import pytest

from support.deciding import ALICE, NOW, entry, facts
from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH, QUERY, QUEUES, REGISTRATION
from wakupush.protocol.segments import Segment
from wakupush.server.engine.message import Message, Part, Postponed
from wakupush.server.engine.outcome import Outcome
from wakupush.server.engine.unread import decide

PART = Part(Segment(bytes(32), 0, 2, b"part"), ALICE.public_key)
#: What opening an envelope, or putting its segments together, ends with.
UNREADABLE = [
    Failure.PAYLOAD_MALFORMED,
    Failure.SIGNATURE_INVALID,
    Failure.SIGNATURE_MISSING,
    Failure.METADATA_MALFORMED,
    Failure.SEGMENT_INCOMPLETE,
    Failure.SEGMENT_LIMIT,
    Failure.TYPE_UNSUPPORTED,
]


@pytest.mark.parametrize("queue", QUEUES.values(), ids=lambda queue: queue.name)
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (Failure.NOT_FOR_US, EventKind.FOREIGN),
        (PART, EventKind.SEGMENT),
        *((failure, EventKind.REFUSED) for failure in UNREADABLE),
    ],
)
def test_what_is_not_read_is_told_of_and_met_by_silence(queue, content, kind):
    known = facts(queue)
    failure = content if isinstance(content, Failure) else None
    events = (
        replace(message_event(known.task, entry(1), EventKind.RECEIVED, NOW), queue_wait=2.0),
        message_event(known.task, entry(1), kind, NOW, failure=failure),
    )
    if kind is EventKind.FOREIGN:
        events = tuple(replace(event, trace_id=None) for event in events)
    keep = content if isinstance(content, Part) else None
    assert decide(Message(entry(1), content), content, known) == Outcome(entry=entry(1), events=events, keep=keep)


@pytest.mark.parametrize("failure", [Failure.NOT_FOR_US, *UNREADABLE])
def test_parts_that_make_nothing_are_forgotten(failure):
    outcome = decide(Message(entry(1), failure, PART), failure, facts(REGISTRATION))
    assert (outcome.keep, outcome.forget) == (None, PART)


def test_what_is_old_and_not_read_is_not_said_to_be_too_old():
    old = Message(entry(1, seen=NOW - 10_000), Failure.PAYLOAD_MALFORMED)
    assert [event.kind for event in decide(old, old.content, facts(DISPATCH)).events] == [
        EventKind.RECEIVED,
        EventKind.REFUSED,
    ]


@pytest.mark.parametrize("postponed", [Postponed(for_key=True), Postponed(for_key=False)])
def test_what_waits_has_not_happened_yet(postponed):
    outcome = decide(Message(entry(1), postponed, PART), postponed, facts(QUERY))
    assert outcome == Outcome(entry=entry(1), events=(), postponed=postponed)
