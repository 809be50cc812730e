"""The state of a development Waku node, without HTTP: subscriptions, one relay cache, a store archive and a log.

There is no network: the node hands every message that is published on it to itself, and has no other traffic.
"""

import bisect
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from wakupush.devnet.controls import EventLog
from wakupush.devnet.node.cache import MessageCache
from wakupush.devnet.node.filter_state import Filter, NwakuFilter
from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage
from wakupush.protocol.hashing import message_hash

_SEEN_CAPACITY = 100_000
#: Bytes of a message's ``meta`` that a node decodes.
MOST_META = 64
_NANOSECONDS = 1_000_000_000

_COUNTERS = ("published", "duplicates", "refused", "read", "dropped_from_cache", "archived", "restarts")


class PublishRefusedError(ValueError):
    """The node does not take this message; the text says why."""


class QueryRefusedError(ValueError):
    """The archive does not answer this query; the text says why."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The settings that an operator of a node would choose."""

    #: Shards that need no REST subscription, as nwaku's ``--shard``.
    shards: tuple[str, ...] = ()
    #: Unread messages of all topics together; nwaku's own default is 50.
    cache_capacity: int = 10_000
    #: The archive takes messages whose sender timestamp is within so many seconds of now; None takes any.
    archive_window: float | None = 20.0
    archive_capacity: int = 50_000
    #: SQLite database that keeps the archive over a restart, as real nodes do; None keeps it in memory.
    archive_file: Path | None = None
    #: Keeps the log of the controls over a restart.
    log_file: Path | None = None
    #: Limit of a message's protobuf encoding, as `--max-msg-size=1024KiB` of both nodes.
    max_message_bytes: int = 1024 * 1024
    #: URLs of the nodes that it hands everything to.
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A message in the archive."""

    hash: bytes
    pubsub_topic: str
    message: WakuMessage
    #: In nanoseconds since the epoch, by the node's clock.
    arrived: int


@dataclass(frozen=True, kw_only=True)
class StoreQuery:
    """A store query; every criterion that is not None must be met.

    Times are sender timestamps in nanoseconds, both inclusive. The cursor is the hash that the page before gave.
    """

    pubsub_topic: str | None = None
    content_topics: frozenset[str] | None = None
    start_time: int | None = None
    end_time: int | None = None
    hashes: frozenset[bytes] | None = None
    include_data: bool = False
    ascending: bool = True
    page_size: int = 20
    cursor: bytes | None = None

    def matches(self, entry: ArchivedMessage) -> bool:
        """Return whether an entry meets the criteria other than time and hash."""
        return (self.pubsub_topic is None or entry.pubsub_topic == self.pubsub_topic) and (
            self.content_topics is None or entry.message.content_topic in self.content_topics
        )


class Relay(Protocol):
    """The store of unread messages, topic by topic."""

    def subscribe(self, topic: str) -> None:
        """Begin to keep messages of a topic."""

    def unsubscribe(self, topic: str) -> None:
        """Forget a topic with its unread messages."""

    def read(self, topic: str) -> list[WakuMessage] | None:
        """Take unread messages of a topic; None if it is not subscribed."""

    def __len__(self) -> int:
        """Return how many messages are unread."""


class ArchiveFile:
    """Archived messages, none of them ephemeral, in a SQLite database; rows outlive the process, not the machine."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._database.executescript(
            """
            PRAGMA journal_mode = wal;
            PRAGMA synchronous = off;
            CREATE TABLE IF NOT EXISTS message (
                hash BLOB PRIMARY KEY, pubsub_topic TEXT, arrived INTEGER, payload BLOB, content_topic TEXT,
                version INTEGER, timestamp INTEGER, meta BLOB
            );
            """
        )

    def __iter__(self) -> Iterator[ArchivedMessage]:
        for digest, pubsub_topic, arrived, *values in self._database.execute("SELECT * FROM message"):
            payload, topic, version, timestamp, meta = values
            message = WakuMessage(payload=payload, content_topic=topic, version=version, timestamp=timestamp, meta=meta)
            yield ArchivedMessage(digest, pubsub_topic, message, arrived)

    def add(self, entry: ArchivedMessage) -> None:
        """Keep a message that is not there yet."""
        it = entry.message
        values = (it.payload, it.content_topic, it.version, it.timestamp, it.meta)
        self._database.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (entry.hash, entry.pubsub_topic, entry.arrived, *values),
        )

    def remove(self, digest: bytes) -> None:
        """Forget a message."""
        self._database.execute("DELETE FROM message WHERE hash = ?", (digest,))


class NodeArchive:
    """The messages that a store node keeps, ordered by sender timestamp and hash; when full, the oldest goes.

    Args:
        capacity: how many are kept.
        file: keeps them over a restart.
    """

    def __init__(self, capacity: int, file: Path | None = None) -> None:
        self._capacity = capacity
        self._entries: dict[bytes, ArchivedMessage] = {}
        self._order: list[tuple[int, bytes]] = []
        self._file = file and ArchiveFile(file)
        for entry in self._file or ():
            self._keep(entry)

    def add(self, entry: ArchivedMessage) -> bool:
        """Keep a message and return True, or return False if it is here already."""
        if entry.hash in self._entries:
            return False
        if len(self._order) >= self._capacity:
            _, oldest = self._order.pop(0)
            del self._entries[oldest]
            if self._file:
                self._file.remove(oldest)
        self._keep(entry)
        if self._file:
            self._file.add(entry)
        return True

    def wipe(self) -> None:
        """Forget all messages, as after the loss of a node's database."""
        if self._file:
            for digest in self._entries:
                self._file.remove(digest)
        self._entries.clear()
        self._order.clear()

    def _keep(self, entry: ArchivedMessage) -> None:
        self._entries[entry.hash] = entry
        bisect.insort(self._order, (entry.message.timestamp, entry.hash))

    def between(self, start: int, end: int, *, ascending: bool = True) -> Iterator[ArchivedMessage]:
        """Yield the messages with a sender's timestamp of this time, both nanoseconds inclusive, in its order."""
        return self._span(self._order, (start, b""), (end + 1, b""), ascending=ascending)

    def query(self, query: StoreQuery) -> tuple[list[ArchivedMessage], bytes | None]:
        """Return one page, oldest message first whatever the direction, and the cursor if there is more.

        Raises:
            QueryRefusedError: the cursor is not in the archive.
        """
        matches: list[ArchivedMessage] = []
        for entry in self._walk(query):
            if not query.matches(entry):
                continue
            if len(matches) == query.page_size:
                return _oldest_first(matches, query), matches[-1].hash
            matches.append(entry)
        return _oldest_first(matches, query), None

    def _walk(self, query: StoreQuery) -> Iterator[ArchivedMessage]:
        low = (INT64_MIN if query.start_time is None else query.start_time, b"")
        high = (INT64_MAX + 1 if query.end_time is None else query.end_time + 1, b"")
        if query.cursor is not None:
            if query.cursor not in self._entries:
                is_zero = not any(query.cursor)
                raise QueryRefusedError(
                    "INVALID_QUERY: all zeroes cursor hash" if is_zero else "DRIVER_ERROR: cursor not found"
                )
            last = (self._entries[query.cursor].message.timestamp, query.cursor)
            after = (last[0], last[1] + b"\0")
            low, high = (max(low, after), high) if query.ascending else (low, min(high, last))
        order = self._order
        if query.hashes is not None:
            named = [entry for digest in query.hashes if (entry := self._entries.get(digest))]
            order = sorted((entry.message.timestamp, entry.hash) for entry in named)
        return self._span(order, low, high, ascending=query.ascending)

    def _span(
        self, order: Sequence[tuple[int, bytes]], low: tuple[int, bytes], high: tuple[int, bytes], *, ascending: bool
    ) -> Iterator[ArchivedMessage]:
        """Yield the messages from one place in an order on, to another, which is not included."""
        first, end = bisect.bisect_left(order, low), bisect.bisect_left(order, high)
        positions = range(first, end) if ascending else range(end - 1, first - 1, -1)
        return (self._entries[order[position][1]] for position in positions)


class DevelopmentNode:
    """The state of a development node with nwaku's behaviour; times are this machine's clock."""

    DEFAULTS: ClassVar[NodeSettings] = NodeSettings()

    def __init__(self, settings: NodeSettings | None = None) -> None:
        self.settings = settings or self.DEFAULTS
        self.archive = NodeArchive(self.settings.archive_capacity, self.settings.archive_file)
        self.log = EventLog(file=self.settings.log_file)
        #: Hands each new message to other nodes.
        self.forward: Callable[[str, WakuMessage], None] = lambda _topic, _message: None
        #: Shards on which it has no relay peers.
        self.lonely_shards: set[str] = set()
        self.counters: Counter[str] = Counter(dict.fromkeys(_COUNTERS, 0))
        self._begin()

    def _begin(self) -> None:
        self.topics: set[str] = set(self.settings.shards)
        self._recent: OrderedDict[tuple[bytes, int, bool], None] = OrderedDict()
        self._relay = self._new_relay()
        self.filter = self._new_filter()

    def _new_filter(self) -> Filter:
        return NwakuFilter()

    def _new_relay(self) -> Relay:
        self._cache = MessageCache(self.settings.cache_capacity)
        for shard in self.settings.shards:
            self._cache.subscribe(shard)
        return self._cache

    def numbers(self) -> dict[str, int]:
        """Return the counters, and how many messages are unread."""
        return {**self.counters, "unread": len(self._relay)}

    def restart(self) -> None:
        """Forget what a node has in memory: REST subscriptions, unread messages and which messages it has seen."""
        self.counters["restarts"] += 1
        self._begin()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join shards, and begin to keep their messages."""
        for topic in topics:
            self.topics.add(topic)
            self._relay.subscribe(topic)

    def unsubscribe(self, topics: Iterable[str]) -> None:
        """Leave shards; those never joined are ignored."""
        for topic in topics:
            self.topics.discard(topic)
            self._relay.unsubscribe(topic)

    def read(self, topic: str) -> list[WakuMessage] | None:
        """Take unread messages of a shard, own ones included; None if it is not subscribed."""
        messages = self._relay.read(topic)
        self.counters["read"] += len(messages or ())
        return messages

    def publish(self, topic: str, message: WakuMessage) -> bool:
        """Relay a message; one that was seen before goes no further.

        Returns:
            Whether it is new.

        Raises:
            PublishRefusedError: the shard is not subscribed or the message is too big.
        """
        if topic not in self.topics:
            self._refuse(f"Node not subscribed to topic: {topic}")
        if encoded_size(message) > self.settings.max_message_bytes:
            self._refuse(f"Message size exceeded maximum of {self.settings.max_message_bytes} bytes")
        if len(message.meta) > MOST_META:
            return True  # nwaku relays it, and no node can decode it, not even itself
        digest = message_hash(topic, message)
        # Gossip knows a message by all of its bytes: a copy with another version is another one, with the same hash.
        identity = (digest, message.version, message.ephemeral)
        if identity in self._recent:
            self.counters["duplicates"] += 1
            return False
        self._recent[identity] = None
        if len(self._recent) > _SEEN_CAPACITY:
            self._recent.popitem(last=False)
        self.counters["published"] += 1
        self.log.append(
            {
                "pubsubTopic": topic,
                "contentTopic": message.content_topic,
                "hash": f"0x{digest.hex()}",
                "arrivedAt": time.time(),
            }
        )
        self.forward(topic, message)
        self.filter.deliver(topic, message)
        self._deliver(topic, digest, message)
        return True

    def hear_again(self, topic: str, message: WakuMessage) -> None:
        """Keep a message that was published here although it had been seen: nwaku hands it to itself once more."""
        self.counters["dropped_from_cache"] += self._cache.add(topic, message)

    def _deliver(self, topic: str, digest: bytes, message: WakuMessage) -> None:
        """Hand a new message to the relay's readers and to the archive."""
        self.counters["dropped_from_cache"] += self._cache.add(topic, message)
        self._archive(topic, digest, message)

    def _archive(self, topic: str, digest: bytes, message: WakuMessage) -> None:
        now = time.time_ns()
        window = self.settings.archive_window
        is_fresh = window is None or abs(message.timestamp - now) <= window * _NANOSECONDS
        if is_fresh and not message.ephemeral:
            self.counters["archived"] += self.archive.add(ArchivedMessage(digest, topic, message, now))

    def _refuse(self, reason: str) -> None:
        self.counters["refused"] += 1
        raise PublishRefusedError(reason)


def encoded_size(message: WakuMessage) -> int:
    """Return the length in bytes of the protobuf encoding of a message without proof (14/WAKU2-MESSAGE)."""
    zigzag = message.timestamp * 2 if message.timestamp >= 0 else -message.timestamp * 2 - 1
    chunks = (message.payload, message.content_topic.encode(), message.meta)
    return (
        sum(1 + _varint_size(len(chunk)) + len(chunk) for chunk in chunks if chunk)
        + sum(1 + _varint_size(number) for number in (message.version, zigzag) if number)
        + (3 if message.ephemeral else 0)  # field 31 has a tag of two bytes
    )


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def _oldest_first(messages: list[ArchivedMessage], query: StoreQuery) -> list[ArchivedMessage]:
    return messages if query.ascending else messages[::-1]
