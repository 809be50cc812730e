"""Storing outcomes: all rows of a task at once, in the transaction that claimed its messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from psycopg import Connection

from wakupush.model.entries import Entry, SealedAnswer
from wakupush.model.events import Event, merge_alike
from wakupush.postgres import answers as outbox
from wakupush.postgres import events, ledger, message_segments
from wakupush.protocol.identity import Identity
from wakupush.redis import watched
from wakupush.server.delivery.posting import Posting
from wakupush.server.engine import segments
from wakupush.server.engine.engine import Engine
from wakupush.server.engine.kind import Context, Kind
from wakupush.server.engine.message import Part
from wakupush.server.engine.outcome import Outcome

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which beat leaves the answers to the worker that committed them.
HOLD_SECONDS: Final = 30.0
#: Answers with their ids.
Answers = list[tuple[int, SealedAnswer]]


@dataclass(frozen=True, slots=True)
class Committed:
    """The effects of a task, once it is committed."""

    #: Of each outcome.
    answers: list[Answers]
    #: Deliveries under a lease of this worker.
    postings: Sequence[Posting]
    events: list[Event]


@dataclass(frozen=True, slots=True)
class Correction:
    """The new outcome of a message whose answer is not true any more."""

    outcome: Outcome
    answer: list[SealedAnswer]
    #: Of the old answer, in the outbox.
    old_ids: list[int]


def store(
    connection: Connection,
    engine: Engine,
    kind: Kind[Any, Any],
    context: Context,
    outcomes: Sequence[Outcome],
    *,
    answers: Sequence[list[SealedAnswer]],
    alone: Entry | None,
) -> Committed:
    """Store the outcomes of the messages of a task; locks are taken in sorted order.

    Args:
        connection: in the transaction that claimed them.
        answers: the parts of each.
        alone: the only message, if its attempts were counted: they are forgotten.

    Raises:
        OutdatedError: another worker stored a newer registration since the facts were read.
        RedisError: the query topics of a registered user cannot be watched, so nothing may be committed.
    """
    effects = kind.store(connection, outcomes, context)
    if any(outcome.waiting_part or outcome.last_part for outcome in outcomes):
        _store_parts(connection, context.identity, outcomes)
    new_answers = _add_answers(connection, answers)
    all_events = merge_alike([*(event for outcome in outcomes for event in outcome.events), *effects.events])
    events.add(connection, all_events, context.identity)
    if alone is not None:
        ledger.forget_attempts(connection, alone)
    if effects.topics:
        # Under the lock that the sweep of unused topics waits for.
        watched.add(engine.redis, effects.topics)
    return Committed(new_answers, effects.postings, all_events)


def correct(
    connection: Connection, kind: Kind[Any, Any], context: Context, corrections: Sequence[Correction]
) -> tuple[list[tuple[Outcome, Answers]], list[Event]]:
    """Store outcomes in the place of others that were committed before, with other answers in the place of theirs.

    A correction is left out if beat has claimed the old answer, or if that is not in the outbox any more. Either it
    leaves, or the correction was committed before by a transaction whose end this process did not learn.

    Args:
        connection: in a transaction of its own.

    Returns:
        The outcomes that were stored with their new answers, and the events.
    """
    old_ids = [answer_id for correction in corrections for answer_id in correction.old_ids]
    withdrawn_ids = outbox.withdraw(connection, old_ids, HOLD_SECONDS)
    in_time = [correction for correction in corrections if not withdrawn_ids.isdisjoint(correction.old_ids)]
    new_answers = _add_answers(connection, [correction.answer for correction in in_time])
    outcomes = [correction.outcome for correction in in_time]
    kind.store(connection, outcomes, context)
    all_events = [event for outcome in outcomes for event in outcome.events]
    events.add(connection, all_events, context.identity)
    return list(zip(outcomes, new_answers, strict=True)), all_events


def _add_answers(connection: Connection, all_parts: Sequence[list[SealedAnswer]]) -> list[Answers]:
    ids = iter(outbox.add(connection, [part for parts in all_parts for part in parts], HOLD_SECONDS))
    return [[(next(ids), part) for part in parts] for parts in all_parts]


def _store_parts(connection: Connection, identity: Identity, outcomes: Iterable[Outcome]) -> None:
    """Keep the parts that wait for others, and delete those that are used up.

    If a signer has too many, the oldest of its parts are deleted. The limit for all signers together is left to beat:
    each part would cost a look at all parts.
    """
    waiting_parts: dict[tuple[tuple[bytes, bytes], int], Part] = {}
    complete = set()
    for outcome in outcomes:
        if (part := outcome.waiting_part) is not None:
            waiting_parts.setdefault((part.name, part.segment.index), part)
        if (part := outcome.last_part) is not None:
            complete.add(part.name)
            waiting_parts = {place: other for place, other in waiting_parts.items() if place[0] != part.name}
    if complete:
        message_segments.forget(connection, complete)
    if not waiting_parts:
        return
    parts = [(part.signer, part.segment) for part in waiting_parts.values()]
    message_segments.keep(connection, parts, identity.at_rest)
    trimmed = message_segments.trim(
        connection,
        {signer for signer, _ in parts},
        parts=segments.SIGNER_SEGMENTS,
        bytes=segments.SIGNER_BYTES,
    )
    if trimmed:
        log.info("segments_dropped", segments=trimmed)
