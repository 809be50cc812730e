"""The steps in which the messages of a task are handled, from the first to the last."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

import structlog
from psycopg import Connection
from psycopg_pool import ConnectionPool
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wakupush.model.entries import Entry, Task
from wakupush.model.queues import Queue
from wakupush.postgres import ledger
from wakupush.runtime import metrics
from wakupush.server.engine import segments, unopened, unread
from wakupush.server.engine.engine import Engine
from wakupush.server.engine.follow_up import follow_up
from wakupush.server.engine.kind import Context
from wakupush.server.engine.limits import TaskLimits
from wakupush.server.engine.message import Elsewhere, Message, Part, Readable
from wakupush.server.engine.open import Reader, open_message, public_topics
from wakupush.server.engine.outcome import Outcome
from wakupush.server.engine.pass_on import as_opened, pass_on
from wakupush.server.engine.seal import seal
from wakupush.server.engine.store import store
from wakupush.server.errors import COLLISIONS

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Bytes of answers to queries and of segments that one task loads; what is beyond goes into the queue again. It is
#: four of the largest answers.
TASK_BYTES: Final = 16_000_000


def run(engine: Engine, queue: Queue, entries: Sequence[Entry], *, alone: bool = False, is_rest: bool = False) -> None:
    """Handle messages; when this returns, their effects are committed, or they are in a queue again.

    Args:
        entries: as ingest enqueued them.
        alone: whether there is only one message, whose attempts are counted.
        is_rest: whether they came through the queue `rest`, and are handled here in any case.

    Raises:
        Exception: nothing was committed; or messages could not be passed on, and come back with the task.
    """
    kind, settings = engine.kinds.by_queue[queue.name], engine.settings
    task = Task(queue, len(entries), engine.now(), engine.worker)
    new = without_copies(engine.pool, entries, settings.ingest.claim_ttl)
    if not new:
        return
    reader = Reader(engine.kinds, kind, engine.identity)
    messages = _open(engine, reader, new)
    here, elsewhere = _split(messages)
    limits = TaskLimits(engine.limiter)
    divides = not (is_rest or alone) and engine.rest.is_served()
    strangers: list[tuple[Queue, Message]] = []
    if divides and elsewhere:
        elsewhere, strangers = _divide(engine, messages)
    try:
        for attempt in _collisions():
            with attempt, engine.pool.connection() as connection:
                context = Context(
                    task=task,
                    identity=engine.identity,
                    settings=settings,
                    profiles=engine.profiles,
                    now=engine.now(),
                    room=TASK_BYTES,
                    divides=divides,
                    is_patient=is_rest or alone,
                )
                decisions = decide(connection, _claim(connection, here), reader, context, limits)
                if decisions.passed_on or decisions.rest:
                    ledger.remove(connection, [message.entry for _, message in decisions.passed_on + decisions.rest])
                    _log_cut(task, decisions.passed_on)
                outcomes = decisions.outcomes
                answers = seal(outcomes, engine.identity, most_bytes=settings.waku.max_message_bytes)
                counted_entry = entries[0] if alone else None
                committed = store(connection, engine, kind, context, outcomes, answers=answers, alone=counted_entry)
    except Exception:
        limits.give_back({entry.hash for entry in new})
        raise
    try:
        follow_up(engine, kind, context, outcomes, committed)
    finally:
        pass_on(engine.app, as_opened(elsewhere + decisions.passed_on, engine.identity), is_rest=is_rest)
        engine.rest.send(as_opened(strangers + decisions.rest, engine.identity))


def without_copies(pool: ConnectionPool, entries: Sequence[Entry], claim_ttl: float) -> Sequence[Entry]:
    """Return the messages to open, without stale ones that are in the ledger: those are copies, which anybody can send.

    Args:
        claim_ttl: see `Entry.is_stale`, in seconds.
    """
    stale = [entry for entry in entries if entry.is_stale(claim_ttl)]
    if not stale:
        return entries
    with pool.connection() as connection:
        copies = ledger.known(connection, stale)
    if copies:
        metrics.MESSAGES_KNOWN.inc(len(copies))
    return [entry for entry in entries if entry.hash not in copies]


@dataclass(frozen=True, slots=True)
class Decisions:
    """The outcomes of messages, and those that go into a queue again, unclaimed."""

    outcomes: list[Outcome]
    passed_on: list[tuple[Queue, Message]]
    #: Those that the pool `rest` handles.
    rest: list[tuple[Queue, Message]]


def decide(
    connection: Connection, messages: Sequence[Message], reader: Reader, context: Context, limits: TaskLimits
) -> Decisions:
    """Return what is decided on claimed messages, in their order.

    Messages for devices that no push reached yet are left to the pool `rest` before anything is counted for them. Sizes
    are measured and limits are asked before anything is loaded. A task that asks for too much is cut, but its
    first message stays: the limits of a message bound it.
    """
    kind = reader.kind
    passed_on: list[tuple[Queue, Message]] = []
    rest: list[tuple[Queue, Message]] = []
    if any(isinstance(message.content, Part) for message in messages):
        messages, later_parts, large_parts, loaded_bytes = segments.put_together(
            connection, messages, reader, context.room, waits=context.is_patient, divides=context.divides
        )
        rest += [(kind.queue, message) for message in large_parts]
        context = replace(context, room=context.room - loaded_bytes)
        messages, passed_on = _split(messages)
        passed_on += [(kind.queue, message) for message in later_parts]
    readable = [message for message in messages if isinstance(message.content, Readable)]
    outcomes: dict[bytes, Outcome] = {}
    if readable:
        measured = kind.measure(connection, readable, context)
        if context.divides:
            express = kind.express(readable, measured, context)
            rest += [(kind.queue, message) for message in readable if message.entry.hash not in express]
            readable = [message for message in readable if message.entry.hash in express]
        verdicts = limits.ask(kind.charge(readable, measured, context))
        if context.divides and kind.exceeds is not None:
            above = kind.exceeds(readable, measured, verdicts)
            rest += [(kind.queue, message) for message in readable if message.entry.hash in above]
            readable = [message for message in readable if message.entry.hash not in above]
        facts = measured
        if kind.look_up is not None:
            facts, cut = kind.look_up(connection, readable, measured, verdicts, context)
            passed_on += [(kind.queue, message) for message in readable if message.entry.hash in cut]
            limits.give_back(cut)
            readable = [message for message in readable if message.entry.hash not in cut]
        left_out = {message.entry.hash for _, message in rest + passed_on}
        messages = [message for message in messages if message.entry.hash not in left_out]
        kind_outcomes = kind.decide(readable, facts, verdicts, context)
        if len(readable) == len(messages):
            return Decisions(kind_outcomes, passed_on, rest)
        outcomes = {outcome.entry.hash: outcome for outcome in kind_outcomes}
    return Decisions(
        [outcomes.get(message.entry.hash) or unread.decide(message, context) for message in messages], passed_on, rest
    )


def _open(engine: Engine, reader: Reader, entries: Sequence[Entry]) -> list[Message]:
    """Open messages. On public topics the keys are looked up before, and it is noted where no key fits."""
    find_keys = reader.kind.keys
    keys: Mapping[bytes, Sequence[bytes | None]] = {}
    if find_keys is not None and (topics := public_topics(entries, engine.identity)):
        with engine.pool.connection() as connection:
            keys = find_keys(connection, topics)
    messages = [open_message(entry, reader, keys) for entry in entries]
    if find_keys is not None:
        unopened.note(engine, messages)
    return messages


def _claim(connection: Connection, messages: Sequence[Message]) -> list[Message]:
    """Enter messages into the ledger, and return those that were not there yet, each once.

    This waits for other workers that handle the same messages. Nothing may be looked up before: two workers would
    decide the same message.
    """
    new = ledger.add(connection, [message.entry for message in messages])
    new_messages = []
    for message in messages:
        if message.entry.hash in new:
            new.discard(message.entry.hash)
            new_messages.append(message)
    return new_messages


def _divide(
    engine: Engine, messages: Iterable[Message]
) -> tuple[list[tuple[Queue, Message]], list[tuple[Queue, Message]]]:
    """Return the messages of other kinds: those that go to their queues, and those that go to `rest` unread.

    The signers of these have no device that a push once reached.
    """
    by_queue: dict[Queue, list[tuple[Message, bytes]]] = {}
    for message in messages:
        if isinstance(content := message.content, Elsewhere):
            by_queue.setdefault(content.queue, []).append((message, content.signer.key_hash))
    to_queues: list[tuple[Queue, Message]] = []
    to_rest: list[tuple[Queue, Message]] = []
    for queue, pairs in by_queue.items():
        proven: AbstractSet[bytes] = {signer for _, signer in pairs}
        if (find_proven := engine.kinds.by_queue[queue.name].proven) is not None:
            with engine.pool.connection() as connection:
                proven = find_proven(connection, proven)
        for message, signer in pairs:
            (to_queues if signer in proven else to_rest).append((queue, message))
    return to_queues, to_rest


def _split(messages: Iterable[Message]) -> tuple[list[Message], list[tuple[Queue, Message]]]:
    """Return the messages that this queue handles, and those that belong elsewhere."""
    here: list[Message] = []
    elsewhere: list[tuple[Queue, Message]] = []
    for message in messages:
        if isinstance(message.content, Elsewhere):
            elsewhere.append((message.content.queue, message))
        else:
            here.append(message)
    return here, elsewhere


def _log_cut(task: Task, passed_on: Sequence[tuple[Queue, Message]]) -> None:
    if later := sum(queue is task.queue for queue, _ in passed_on):
        log.debug("task_cut", queue=task.queue.name, messages=task.size, later=later)


def _collisions() -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(COLLISIONS),
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        stop=stop_after_attempt(5),
        reraise=True,
    )
