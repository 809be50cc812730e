"""Messages on their way in through a queue, and answers on their way out through the outbox."""

from dataclasses import dataclass, field

from wakupush.model.queues import Queue
from wakupush.model.waku_message import WakuMessage


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as it arrived: ciphertext, and perhaps what another worker opened, sealed."""

    #: The shard that it came from, and that its answer goes to.
    pubsub_topic: str
    #: 14/WAKU2-MESSAGE deterministic hash, 32 bytes.
    hash: bytes
    #: When ingest first saw it, in seconds since the epoch; for a message out of a Store its sender's time, unless that
    #: lies in the future.
    seen: float
    message: WakuMessage
    #: Whether ingest read it as it came in, so that `seen` does not depend on its sender.
    live: bool = False
    #: Whether it waited in Postgres, and is enqueued before the transaction that takes it out of the ledger has ended.
    deferred: bool = False
    #: The message as another worker opened it, see `application.seal_opened`; else empty.
    opened: bytes = field(default=b"", repr=False)

    @property
    def trace_id(self) -> str:
        """The name of this message in logs and events, the same from ingest to gorush."""
        return self.hash[:8].hex()

    @property
    def shard(self) -> int | None:
        """The number of its shard, for events; None for a topic of another form."""
        number = self.pubsub_topic.rpartition("/")[2]
        return int(number) if number.isdecimal() else None

    @property
    def age(self) -> float | None:
        """The seconds since its sender's time when ingest saw it, to a tenth; None if out of a Store, or unknown."""
        is_known = self.live and self.message.timestamp
        return round(self.seen - self.message.timestamp / 10**9, 1) if is_known else None

    def is_stale(self, claimed_for: float) -> bool:
        """Return whether it may be a copy of a message that was enqueued before.

        A copy has the time of its original, because the hash covers it. Ingest enqueues a message only once in
        `claimed_for` seconds. So of two copies that are both enqueued, at least one is seen more than half of that away
        from its time. A message that is honest and fresh is never stale, and its later copies always are. What
        reconcile brings counts as seen at its own time. A deferred message is no copy, though it may still be in the
        ledger when a worker looks; claiming it waits for the transaction.
        """
        return not self.deferred and abs(self.seen - self.message.timestamp / 10**9) > claimed_for / 2


@dataclass(frozen=True, slots=True)
class Task:
    """Messages that a worker handles together."""

    queue: Queue
    #: How many messages.
    size: int
    #: When the worker took it, in seconds since the epoch.
    taken: float
    #: The name of the worker's process in events.
    worker: str

    def queue_wait(self, entry: Entry) -> float:
        """Return the seconds between ingest seeing a message and the worker taking it."""
        return max(0.0, self.taken - entry.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedAnswer:
    """An answer, or a part of one, sealed to the key of the client that asked."""

    #: Where it goes: the shard that the question came from, and the asking key's partitioned topic.
    pubsub_topic: str
    content_topic: str
    #: 26/WAKU2-PAYLOAD.
    payload: bytes = field(repr=False)
    trace_id: str
