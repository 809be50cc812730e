"""What comes of the messages of one task, collected to be committed at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from wakupush import metrics, tracing
from wakupush.events import Event, EventKind
from wakupush.failures import Failure
from wakupush.protocol import application
from wakupush.protocol.application import Opened
from wakupush.protocol.envelopes import seal_parts
from wakupush.protocol.topics import content_topic, partitioned_topic
from wakupush.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.server.opening import Part, forget_parts, put_together
from wakupush.state import answers, events, ledger
from wakupush.state.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import Connection

    from wakupush.protocol.keys import PublicKey
    from wakupush.queues import Entry, Queue
    from wakupush.server.context import Context
    from wakupush.server.opening import Content
    from wakupush.state.registrations import Installation

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

Type = application.Type

#: Seconds for which the schedule leaves the answers to the worker that committed them.
HOLD_SECONDS = 30.0
#: Which queue handles which message, wherever it arrived.
HOME: dict[int, Queue] = {
    Type.PUSH_NOTIFICATION_REGISTRATION: REGISTRATION,
    Type.PUSH_NOTIFICATION_QUERY: QUERY,
    Type.PUSH_NOTIFICATION_REQUEST: DISPATCH,
}


class BatchTooLargeError(Exception):
    """The messages of a batch need too much memory together: each is to be handled alone."""


@dataclass(slots=True)
class Batch:
    """The messages of one task and what comes of them."""

    context: Context
    queue: Queue
    size: int
    #: When the worker took it, in seconds since the epoch.
    taken: float
    events: list[Event] = field(default_factory=list)
    #: Each in one part, or in segments.
    answers: list[list[Answer]] = field(default_factory=list)
    #: Messages for other queues, sent there before this batch is acknowledged.
    passed_on: list[tuple[Queue, Entry]] = field(default_factory=list)
    #: Of `answers`, once they are committed.
    answer_ids: list[list[int]] = field(default_factory=list)
    #: Bytes that were loaded, see `reserve`.
    reserved: int = 0
    #: What limits said, by their name, the envelope's hash and the position in it; kept when a transaction is repeated.
    allowed: dict[tuple[str, bytes, int], bool] = field(default_factory=dict)

    def reserve(self, size: int) -> None:
        """Count bytes that are about to be loaded for a message; limits of messages hold for one that is alone.

        Raises:
            BatchTooLargeError: these are more than one task may load.
        """
        self.reserved += size
        if self.size > 1 and self.reserved > self.context.settings.worker.bytes_per_task:
            raise BatchTooLargeError

    def admit(self, connection: Connection, opened: list[tuple[Entry, Content]]) -> list[tuple[Entry, Opened]]:
        """Enter messages into the ledger and return those that are new, readable and for this queue.

        What belongs to another queue is passed on, and entered there.
        """
        parts = {entry.hash: content for entry, content in opened if isinstance(content, Part)}
        ours: list[tuple[Entry, Content]] = []
        limits = self.context.settings.limits
        for entry, content in put_together(connection, opened, limits, self.context.identity.segment_key, self.reserve):
            home = HOME.get(content.type, self.queue) if isinstance(content, Opened) else self.queue
            if home is self.queue:
                ours.append((entry, content))
            else:
                self.passed_on.append((home, entry))
        new = ledger.add(connection, [entry for entry, _ in ours])
        admitted = []
        for entry, content in ours:
            if entry.hash not in new:
                continue
            new.discard(entry.hash)
            self._record_content(entry, content)
            if isinstance(content, Opened):
                if entry.hash in parts:
                    forget_parts(connection, parts[entry.hash])
                if content.type in HOME:
                    admitted.append((entry, content))
        return admitted

    def _record_content(self, entry: Entry, content: Content) -> None:
        self.record(entry, EventKind.RECEIVED, queue_wait=max(0.0, self.taken - entry.seen))
        match content:
            case Failure.NOT_FOR_US:
                self.record(entry, EventKind.FOREIGN, failure=content)
            case Failure():
                self.record(entry, EventKind.REFUSED, failure=content)
            case Part():
                self.record(entry, EventKind.SEGMENT)
            case Opened() if content.type in HOME:
                self.record(entry, EventKind.OPENED)
            case Opened():
                self.record(entry, EventKind.REFUSED, failure=Failure.TYPE_UNSUPPORTED)

    def allows(self, entry: Entry, name: str, most: int, key: str = "", *, position: int = 0) -> bool:
        """Count a message, or what is at a position in it, and say whether it is within a limit: see `Limiter.allows`.

        It is counted once, however often the transaction is repeated; again where its batch is taken apart.
        """
        counted = (name, entry.hash, position)
        if counted not in self.allowed:
            self.allowed[counted] = self.context.limiter.allows(name, most, key)
        return self.allowed[counted]

    def record(
        self,
        entry: Entry,
        kind: EventKind,
        *,
        failure: Failure | None = None,
        reason: str | None = None,
        platform: str | None = None,
        queue_wait: float | None = None,
        key_hash: bytes | None = None,
        installation: Installation | None = None,
    ) -> None:
        """Add an event of a message; it waited in its queue for `queue_wait` seconds."""
        key_pseudonym = installation_pseudonym = None
        if installation is not None:
            key_pseudonym, installation_pseudonym = self.context.identity.pseudonyms(installation)
        elif key_hash is not None:
            key_pseudonym = self.context.identity.pseudonym(key_hash)
        now = self.context.now()
        self.events.append(
            Event(
                kind=kind,
                time=now,
                worker=self.context.worker,
                trace_id=entry.trace_id,
                queue=self.queue.name,
                queue_wait=queue_wait,
                latency=max(0.0, now - entry.seen),
                platform=platform,
                failure=failure and failure.label,
                reason=reason,
                batch_size=self.size,
                key_pseudonym=key_pseudonym,
                installation_pseudonym=installation_pseudonym,
            )
        )

    def answer(
        self,
        entry: Entry,
        asker: PublicKey,
        kind: Type.ValueType,
        inner: bytes,
        *,
        failure: Failure | None = None,
    ) -> None:
        """Add the answer to a message."""
        self.answers.append(seal_answer(self.context, entry, asker, kind, inner))
        self.record(entry, EventKind.ANSWERED, failure=failure)

    def replace_answer(self, connection: Connection, position: int, parts: list[Answer]) -> None:
        """Put another answer in the place of one that has not left yet."""
        answers.remove(connection, self.answer_ids[position])
        self.answers[position] = parts
        self.answer_ids[position] = answers.add(connection, parts, HOLD_SECONDS)

    @property
    def outbox(self) -> list[tuple[int, Answer]]:
        """The committed answers, with their ids."""
        return [
            pair
            for ids, parts in zip(self.answer_ids, self.answers, strict=True)
            for pair in zip(ids, parts, strict=True)
        ]

    def write(self, connection: Connection) -> None:
        """Write the answers and events, in the transaction of the effects."""
        ids = iter(answers.add(connection, [part for parts in self.answers for part in parts], HOLD_SECONDS))
        self.answer_ids = [[next(ids) for _ in parts] for parts in self.answers]
        events.add(connection, self.events)

    def count(self) -> None:
        """Count what was committed."""
        metrics.BATCH_SIZE.labels(self.queue.name).observe(self.size)
        for event in self.events:
            if event.queue_wait is not None:
                metrics.QUEUE_WAIT.labels(self.queue.name).observe(event.queue_wait)
        count_events(self.events)


def count_events(committed: Iterable[Event]) -> None:
    """Count events that were committed, log each at DEBUG, and record it as a span since ingest saw its message."""
    for event in committed:
        facts: tracing.Attributes = {
            "queue": event.queue,
            "platform": event.platform,
            "failure": event.failure,
            "reason": event.reason,
            "attempt": event.attempt,
        }
        log.debug("event", trace_id=event.trace_id, kind=event.kind.value, **facts)
        tracing.record(event.kind.value, event.trace_id, event.time - (event.latency or 0.0), event.time, facts)
        metrics.EVENTS.labels(event.kind, event.queue or "", event.platform or "", event.failure or "").inc()


def seal_answer(context: Context, entry: Entry, asker: PublicKey, kind: Type.ValueType, inner: bytes) -> list[Answer]:
    """Return an answer sealed to the key that asked, signed at both layers, for its partitioned topic.

    It goes to the shard that the question came from; in segments if it is too large for the node.
    """
    key = context.identity.private_key
    metadata = application.wrap(kind, inner, key)
    return [
        Answer(
            pubsub_topic=entry.pubsub_topic,
            content_topic=content_topic(partitioned_topic(asker)),
            payload=part,
            trace_id=entry.trace_id,
        )
        for part in seal_parts(metadata, asker, key, most_bytes=context.settings.waku.max_message_bytes)
    ]
