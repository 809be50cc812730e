"""Writing what was decided: all rows of a task at once, in the transaction that claimed its messages."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from psycopg import Connection

from wakupush.model.deliveries import RememberedRequest
from wakupush.model.entries import Entry, SealedAnswer
from wakupush.model.events import Event, merge_alike
from wakupush.postgres import (
    answers,
    events,
    ledger,
    message_segments,
    query_topics,
    registrations,
    requests,
    waiting_queries,
)
from wakupush.redis import watched
from wakupush.server.delivery.posting import Posting
from wakupush.server.delivery.worker import Worker
from wakupush.server.inbox import segments
from wakupush.server.inbox.content import Part
from wakupush.server.inbox.outcome import Outcome

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which the schedule leaves the answers to the worker that committed them.
HOLD_SECONDS: Final = 30.0
#: Seconds within which a query that waits for its turn is looked at again, at a random time.
TURN_SECONDS: Final = 1200.0


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, once it is committed."""

    #: Of each outcome, the answers with their ids.
    outbox: list[list[tuple[int, SealedAnswer]]]
    #: Deliveries under a lease of this worker.
    postings: list[Posting]
    events: list[Event]


@dataclass(frozen=True, slots=True)
class Correction:
    """The new outcome of a request whose answer is not true any more."""

    outcome: Outcome
    sealed: list[SealedAnswer]
    #: Of the old answer, in the outbox.
    old_ids: list[int]


def write(
    connection: Connection,
    resources: Worker,
    outcomes: Sequence[Outcome],
    sealed: Sequence[list[SealedAnswer]],
    *,
    alone: Entry | None,
) -> Written:
    """Write the outcomes of the messages of a task; locks are taken in sorted order.

    Args:
        connection: in the transaction that claimed them.
        alone: the only message, if its attempts were counted: they are forgotten.

    Raises:
        OutdatedError: another worker stored a newer registration since the facts were read.
        RedisError: the query topics of a registered user cannot be watched, so nothing may be committed.
    """
    changes = [outcome.change for outcome in outcomes if outcome.change]
    admissions = [admission for outcome in outcomes for admission in outcome.admissions]
    if changes:
        registrations.store(connection, changes, resources.identity.at_rest)
    listening = {outcome.listening for outcome in outcomes if outcome.listening}
    topics = query_topics.add(connection, listening) if listening else set()
    if any(outcome.keep or outcome.forget for outcome in outcomes):
        _write_parts(connection, resources, outcomes)
    if any(outcome.postponed for outcome in outcomes):
        waiting_queries.add(connection, list(_waiting(outcomes)))
    added = requests.take_on(
        connection,
        [admission.delivery for admission in admissions],
        {message_id: request for message_id, request in _remembered(outcomes).items() if any(request.succeeded)},
        lease=resources.settings.delivery.lease,
        time_to_live=resources.times_to_live,
        at_rest=resources.identity.at_rest,
    )
    new = [admission for admission in admissions if admission.delivery.delivery_key in added]
    if expired := [outcome.expired for outcome in outcomes if outcome.expired]:
        requests.remember_over(connection, [request.message_id for request in expired])
    outbox = _add_answers(connection, sealed)
    all_events = merge_alike(
        [*(event for outcome in outcomes for event in outcome.events), *(admission.event for admission in new)]
    )
    events.add(connection, all_events)
    if alone is not None:
        ledger.forget_attempts(connection, alone)
    if topics:
        # Under the lock that the sweep of unused topics waits for.
        watched.add(resources.redis, topics)
    return Written(
        outbox=outbox,
        postings=[Posting(admission.delivery, admission.target) for admission in new],
        events=all_events,
    )


def correct(
    connection: Connection,
    corrections: Sequence[Correction],
) -> tuple[list[tuple[int, SealedAnswer]], list[Event]]:
    """Write corrections of requests that were committed before, with other answers in the place of theirs.

    A correction whose old answer is not in the outbox any more is left out. Either that answer has left, or the
    correction was committed before by a transaction whose end this process did not learn.

    Args:
        connection: in a transaction of its own.
        corrections: of any number of requests.

    Returns:
        The new answers with their ids, and the events.
    """
    removed = answers.remove(connection, [answer_id for correction in corrections for answer_id in correction.old_ids])
    in_time = [correction for correction in corrections if not removed.isdisjoint(correction.old_ids)]
    outbox = _add_answers(connection, [correction.sealed for correction in in_time])
    requests.correct(connection, _remembered(correction.outcome for correction in in_time))
    all_events = [event for correction in in_time for event in correction.outcome.events]
    events.add(connection, all_events)
    return [answer for parts in outbox for answer in parts], all_events


def _add_answers(connection: Connection, sealed: Sequence[list[SealedAnswer]]) -> list[list[tuple[int, SealedAnswer]]]:
    ids = iter(answers.add(connection, [part for parts in sealed for part in parts], HOLD_SECONDS))
    return [[(next(ids), part) for part in parts] for parts in sealed]


def _remembered(outcomes: Iterable[Outcome]) -> dict[bytes, RememberedRequest]:
    return {
        outcome.request.message_id: RememberedRequest(
            [failure is None for failure in outcome.request.failures],
            outcome.request.before.week if outcome.request.before else None,
        )
        for outcome in outcomes
        if outcome.request
    }


def _waiting(outcomes: Iterable[Outcome]) -> Iterator[tuple[Entry, float | None]]:
    """Yield the queries that wait, each with the seconds after which it is due."""
    for outcome in outcomes:
        if outcome.postponed:
            yield outcome.entry, None if outcome.postponed.for_key else random.uniform(0.0, TURN_SECONDS)


def _write_parts(connection: Connection, resources: Worker, outcomes: Iterable[Outcome]) -> None:
    """Keep the parts that wait for others, and forget those that are used up.

    If a signer has too many, the oldest of its parts are deleted. The limit for all signers together is left to the
    schedule: each part would cost a look at all parts.
    """
    keep: dict[tuple[tuple[bytes, bytes], int], Part] = {}
    forgotten = set()
    for outcome in outcomes:
        if outcome.keep is not None:
            keep.setdefault((outcome.keep.name, outcome.keep.segment.index), outcome.keep)
        if outcome.forget is not None:
            forgotten.add(outcome.forget.name)
            keep = {place: part for place, part in keep.items() if place[0] != outcome.forget.name}
    if forgotten:
        message_segments.forget(connection, forgotten)
    if not keep:
        return
    parts = [(part.signer, part.segment) for part in keep.values()]
    message_segments.keep(connection, parts, resources.identity.segment_key)
    trimmed = message_segments.trim(
        connection,
        {signer for signer, _ in parts},
        parts=segments.SIGNER_SEGMENTS,
        bytes=segments.SIGNER_BYTES,
    )
    if trimmed:
        log.info("segments_dropped", segments=trimmed)
