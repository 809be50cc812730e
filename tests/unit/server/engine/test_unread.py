"""Deciding on messages that are not for us, not readable, a part of one, or deferred."""

import pytest

from support.deciding import ALICE, NOW, context, entry, failures, kinds, messages
from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH, QUERY, QUEUES
from wakupush.protocol.segments import Segment
from wakupush.server.engine.message import Deferred, Malformed, Part
from wakupush.server.engine.outcome import Outcome
from wakupush.server.engine.unread import decide

PART = Part(Segment(bytes(32), 0, 2, b"part"), ALICE.public_key, None)
#: How opening an envelope, or putting its segments together, fails.
UNREADABLE = [
    Failure.PAYLOAD_MALFORMED,
    Failure.SIGNATURE_INVALID,
    Failure.SIGNATURE_MISSING,
    Failure.METADATA_MALFORMED,
    Failure.SEGMENT_INCOMPLETE,
    Failure.SEGMENT_LIMIT,
    Failure.TYPE_UNSUPPORTED,
]


def decide_one(content, queue=DISPATCH, **fields):
    [message] = messages(content, **fields)
    return decide(message, context(queue))


@pytest.mark.parametrize("queue", QUEUES.values(), ids=lambda queue: queue.name)
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (Failure.NOT_FOR_US, EventKind.FOREIGN),
        (PART, EventKind.SEGMENT),
        *((failure, EventKind.REFUSED) for failure in UNREADABLE),
    ],
)
def test_an_unread_message_is_silent(queue, content, kind):
    task = context(queue).task
    failure = content if isinstance(content, Failure) else None
    is_foreign = kind is EventKind.FOREIGN
    received = message_event(task, entry(1), EventKind.RECEIVED, NOW, queue_wait=2.0, is_foreign=is_foreign)
    assert (received.trace_id, received.shard) == ((None, None) if is_foreign else (entry(1).trace_id, entry(1).shard))
    events = received, message_event(task, entry(1), kind, NOW, failure=failure, is_foreign=is_foreign)
    waiting_part = content if isinstance(content, Part) else None
    assert decide_one(content, queue) == Outcome(entry=entry(1), events=events, waiting_part=waiting_part)


@pytest.mark.parametrize(
    "failure",
    [Failure.INNER_MALFORMED, Failure.MESSAGE_ID_MISSING, Failure.QUERY_LIMIT, Failure.QUERY_WITHOUT_KEYS],
)
def test_malformed_content_is_silent(failure):
    outcome = decide_one(Malformed(failure), last_part=PART)
    assert outcome == Outcome(entry=entry(1), events=outcome.events, last_part=PART)
    assert kinds(outcome) == [EventKind.RECEIVED, EventKind.OPENED, EventKind.REFUSED]
    assert failures(outcome) == [failure]


@pytest.mark.parametrize("failure", [Failure.NOT_FOR_US, *UNREADABLE])
def test_parts_of_an_unreadable_message_end(failure):
    outcome = decide_one(failure, last_part=PART)
    assert (outcome.waiting_part, outcome.last_part) == (None, PART)


@pytest.mark.parametrize("content", [Failure.PAYLOAD_MALFORMED, Malformed(Failure.INNER_MALFORMED)])
def test_unread_messages_do_not_expire(content):
    assert kinds(decide_one(content, seen=NOW - 10_000))[-1] is EventKind.REFUSED


@pytest.mark.parametrize("deferred", [Deferred(for_key=True), Deferred(for_key=False)])
def test_a_deferred_message_has_no_event(deferred):
    outcome = decide_one(deferred, QUERY, last_part=PART)
    assert outcome == Outcome(entry=entry(1), events=(), deferred=deferred)
