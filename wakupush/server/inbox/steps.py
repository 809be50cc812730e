"""The steps in which the messages of a task are handled, from the first to the last."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog
from psycopg_pool import ConnectionPool
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wakupush.model.entries import Entry, Task
from wakupush.model.failures import Failure
from wakupush.model.limits import Limit, Verdicts
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION, Queue
from wakupush.postgres import ledger
from wakupush.redis.limits import Limiter
from wakupush.runtime import metrics
from wakupush.server.delivery.worker import Worker
from wakupush.server.errors import COLLISIONS
from wakupush.server.inbox import topic_keys, unopened
from wakupush.server.inbox.claim import claim, release
from wakupush.server.inbox.content import Elsewhere, Message, Part, Postponed
from wakupush.server.inbox.decide import query, registration, request, unread
from wakupush.server.inbox.facts import Facts, gather
from wakupush.server.inbox.follow_up import follow_up
from wakupush.server.inbox.open import Reader, open_messages
from wakupush.server.inbox.outcome import Outcome
from wakupush.server.inbox.pass_on import pass_on
from wakupush.server.inbox.seal import seal
from wakupush.server.inbox.write import write

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Contents without a readable message.
_UNREAD: Final = (Failure, Part, Postponed)
#: The function that decides on the messages of a queue.
DECIDE: Final = {
    REGISTRATION.name: registration.decide,
    QUERY.name: query.decide,
    DISPATCH.name: request.decide,
}


def run(resources: Worker, queue: Queue, entries: Sequence[Entry], *, alone: bool = False) -> None:
    """Handle messages; when this returns, their effects are committed, or they are in a queue again.

    Args:
        entries: as ingest enqueued them.
        alone: whether there is only one message, whose attempts are counted.

    Raises:
        Exception: nothing was committed; or messages could not be passed on, and come back with the task.
    """
    task = Task(queue, len(entries), resources.now(), resources.worker)
    settings, key = resources.settings, resources.identity.private_key
    reader = Reader(queue, resources.identity)
    new = without_copies(resources.pool, entries, settings.ingest.claim_ttl)
    if not new:
        return
    keys = topic_keys.read(resources, new) if queue is QUERY else {}
    opened = open_messages(new, reader, keys)
    if queue is QUERY:
        unopened.note(resources, opened)
    elsewhere = [(message.content.queue, message.entry) for message in opened if isinstance(message.content, Elsewhere)]
    here = [message for message in opened if not isinstance(message.content, Elsewhere)]
    limits = _Limits(resources.limiter)
    for attempt in _collisions():
        with attempt, resources.pool.connection() as connection:
            claimed = claim(connection, here)
            gathered = gather(connection, claimed, task, reader, limits.ask, settings=settings, now=resources.now())
            if gathered.passed_on:
                release(connection, [entry for _, entry in gathered.passed_on])
                _log_cut(task, gathered.passed_on)
            outcomes = _decide(gathered.messages, gathered.facts, limits)
            sealed = seal(outcomes, key, most_bytes=settings.waku.max_message_bytes)
            written = write(connection, resources, outcomes, sealed, alone=entries[0] if alone else None)
    try:
        pass_on(resources.app, elsewhere + gathered.passed_on)
    finally:
        follow_up(resources, task, outcomes, written)


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


class _Limits:
    """The limits of a task. Each is counted once, however often the transaction is repeated."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self.verdicts: dict[Limit, bool] = {}

    def ask(self, limits: Iterable[Limit]) -> Mapping[Limit, bool]:
        """Ask those limits that were not asked before, with one round trip, and return all verdicts."""
        new = [limit for limit in dict.fromkeys(limits) if limit not in self.verdicts]
        if new:
            self.verdicts |= self._limiter.ask(new)
        return self.verdicts


def _decide(messages: Sequence[Message], facts: Facts, limits: _Limits) -> list[Outcome]:
    """Return what is decided on messages, in their order.

    Limits are asked all at once, after a first decision says which are needed; then those that come after others which
    let through. A limit that is needed only because another one was reached is not asked: it refuses.
    """
    verdicts = limits.verdicts
    outcomes = _decide_all(messages, facts, Verdicts(verdicts))
    needed = [limit for outcome in outcomes for limit in outcome.limits]
    limits.ask([limit for limit in needed if limit.after is None])
    limits.ask([limit for limit in needed if limit.after is not None and verdicts[limit.after]])
    if not all(verdicts.get(limit, False) for limit in needed):
        outcomes = _decide_all(messages, facts, Verdicts(verdicts, otherwise=False))
    return outcomes


def _decide_all(messages: Sequence[Message], facts: Facts, verdicts: Verdicts) -> list[Outcome]:
    readable = [message for message in messages if not isinstance(message.content, _UNREAD)]
    outcomes = DECIDE[facts.task.queue.name](readable, facts, verdicts) if readable else []
    if len(readable) == len(messages):
        return outcomes
    decided = {outcome.entry.hash: outcome for outcome in outcomes}
    return [
        unread.decide(message, message.content, facts)
        if isinstance(message.content, _UNREAD)
        else decided[message.entry.hash]
        for message in messages
    ]


def _log_cut(task: Task, passed_on: Sequence[tuple[Queue, Entry]]) -> None:
    if later := sum(queue is task.queue for queue, _ in passed_on):
        log.info("task_cut", queue=task.queue.name, messages=task.size, later=later)


def _collisions() -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(COLLISIONS),
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        stop=stop_after_attempt(5),
        reraise=True,
    )
