"""The state of a development node that behaves as go-waku, with queues that block and its queries of the archive."""

import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import ClassVar

from wakupush.devnet.node.filter_state import Filter, GoWakuFilter
from wakupush.devnet.node.state import (
    ArchivedMessage,
    DevelopmentNode,
    NodeArchive,
    NodeSettings,
    QueryRefusedError,
    Relay,
)
from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage

#: A shard, the hash of a message on it, and the message.
Item = tuple[str, bytes, WakuMessage]

#: Messages that wait for the dispatcher: those in its channel, and the one it is about to hand out.
LINE_CAPACITY = 1024 + 1
#: Messages of each shard that wait to get into that line: those that gossip keeps, and the one in between.
INBOX_CAPACITY = 1024 + 1

_MAX_CONTENT_TOPICS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseMessage(WakuMessage):
    """A message that knows which fields its sender left out; these have their zero value here."""

    unset: frozenset[str] = frozenset()


class RelayQueues:
    """A queue for each REST subscription, and one dispatcher that fills them all and the archive.

    The dispatcher waits for room in a queue that is full: until that one is read, no other shard gets a message and the
    archive none. Messages wait for it in bounded buffers; once those are full too, the newest are dropped.

    Args:
        capacity: of each queue.
        archive: takes each message once it has been handed out.
    """

    def __init__(self, capacity: int, archive: Callable[[str, bytes, WakuMessage], None]) -> None:
        self._capacity = capacity
        self._archive = archive
        self._queues: dict[str, list[deque[WakuMessage]]] = {}
        self._inboxes: dict[str, deque[Item]] = {}
        self._line: deque[Item] = deque()

    @property
    def is_blocked(self) -> bool:
        """Whether the dispatcher waits for a queue to be read."""
        return bool(self._line)

    def subscribe(self, topic: str) -> None:
        """Add a queue of a topic, a further one if it has some."""
        self._queues.setdefault(topic, []).append(deque())

    def unsubscribe(self, topic: str) -> None:
        """Remove all queues of a topic with their unread messages."""
        self._queues.pop(topic, None)
        self._inboxes.pop(topic, None)
        self._dispatch()

    def add(self, topic: str, digest: bytes, message: WakuMessage) -> int:
        """Keep a message for the dispatcher and return 0; return 1 if there is no room, and it is dropped."""
        inbox = self._inboxes.setdefault(topic, deque())
        if len(inbox) >= INBOX_CAPACITY:
            return 1
        inbox.append((topic, digest, message))
        self._dispatch()
        return 0

    def read(self, topic: str) -> list[WakuMessage] | None:
        """Drain one of the queues of a topic; None if it has none.

        The dispatcher fills the queue while it is drained, so there can be one message more than its capacity.
        """
        queues = self._queues.get(topic)
        if not queues:
            return None
        queue = random.choice(queues)
        messages: list[WakuMessage] = []
        while queue and len(messages) <= self._capacity:
            messages.append(queue.popleft())
            self._dispatch()
        return messages

    def __len__(self) -> int:
        """Return how many messages are unread, including those that wait for the dispatcher."""
        queues = chain.from_iterable(self._queues.values())
        return sum(map(len, queues)) + sum(map(len, self._inboxes.values())) + len(self._line)

    def _dispatch(self) -> None:
        self._advance()
        while self._line and self._has_room(self._line[0][0]):
            topic, digest, message = self._line.popleft()
            for queue in self._queues.get(topic, ()):
                queue.append(message)
            self._archive(topic, digest, message)
            self._advance()

    def _advance(self) -> None:
        for inbox in self._inboxes.values():
            while inbox and len(self._line) < LINE_CAPACITY:
                self._line.append(inbox.popleft())

    def _has_room(self, topic: str) -> bool:
        return all(len(queue) < self._capacity for queue in self._queues.get(topic, ()))


class GoWakuNode(DevelopmentNode):
    """The state of a development node with go-waku's behaviour."""

    DEFAULTS: ClassVar[NodeSettings] = NodeSettings(cache_capacity=1000, archive_window=None)
    _queues: RelayQueues

    @property
    def is_blocked(self) -> bool:
        """Whether a full queue that is not read holds up the node."""
        return self._queues.is_blocked

    def _new_filter(self) -> Filter:
        return GoWakuFilter(self.topics)

    def _new_relay(self) -> Relay:
        self._queues = RelayQueues(self.settings.cache_capacity, self._archive)
        return self._queues

    def _deliver(self, topic: str, digest: bytes, message: WakuMessage) -> None:
        self.counters["dropped_from_cache"] += self._queues.add(topic, digest, message)


@dataclass(frozen=True, kw_only=True)
class HistoryQuery:
    """A query of go-waku's Store v1; an empty field, or one that is 0, is not a criterion."""

    pubsub_topic: str = ""
    content_topics: tuple[str, ...] = ()
    #: Nanoseconds, both inclusive.
    start_time: int = 0
    end_time: int = 0
    #: The result of `cursor_of` for the page before.
    cursor: tuple[int, bytes] | None = None
    ascending: bool = True
    page_size: int = 20

    def matches(self, entry: ArchivedMessage) -> bool:
        """Return whether an entry meets the criteria, and lies beyond the cursor."""
        return (
            self.pubsub_topic in ("", entry.pubsub_topic)
            and (not self.content_topics or entry.message.content_topic in self.content_topics)
            and (not self.start_time or _stored_at(entry) >= self.start_time)
            and (not self.end_time or _stored_at(entry) <= self.end_time)
            and (self.cursor is None or (cursor_of(entry) > self.cursor) == self.ascending)
            and (self.cursor is None or cursor_of(entry) != self.cursor)
        )


def cursor_of(entry: ArchivedMessage) -> tuple[int, bytes]:
    """Return how Store v1 names a place in the archive: a time and a digest that covers neither shard nor timestamp.

    The time is the sender's or, if the sender gave none, that of arrival. Messages stand in the order of the sender's
    time alone: as in go-waku, a walk that meets messages without a timestamp leaves others out.
    """
    return _stored_at(entry), _digest(entry)


def history(archive: NodeArchive, query: HistoryQuery) -> tuple[list[ArchivedMessage], bool]:
    """Return one page of the archive in the order of time whatever the direction, and whether there is more.

    Raises:
        QueryRefusedError: there are too many content topics, or one is empty, or the cursor is unknown.
    """
    if len(query.content_topics) > _MAX_CONTENT_TOPICS:
        raise QueryRefusedError("exceeds the maximum number of content filters allowed")
    if "" in query.content_topics:
        raise QueryRefusedError("one or more content topics specified is empty")
    if query.cursor is not None and query.cursor not in map(cursor_of, _at(archive, query.cursor[0])):
        raise QueryRefusedError("invalid cursor")
    matches = list(islice(filter(query.matches, _in_order(archive, query)), query.page_size + 1))
    page = matches[: query.page_size]
    return page if query.ascending else page[::-1], len(matches) > len(page)


def _at(archive: NodeArchive, time: int) -> Iterator[ArchivedMessage]:
    """Yield the messages that may be stored at a time: those with this timestamp, and those without one."""
    return chain(archive.between(time, time), archive.between(0, 0))


def _in_order(archive: NodeArchive, query: HistoryQuery) -> Iterator[ArchivedMessage]:
    """Yield the messages that a query may find; those without a timestamp are older than those with one."""
    start, end = query.start_time or INT64_MIN, query.end_time or INT64_MAX
    if query.cursor is not None:
        start, end = (max(start, query.cursor[0]), end) if query.ascending else (start, min(end, query.cursor[0]))
    spans = [(start, min(end, -1)), (0, 0), (max(start, 1), end)]
    for span in spans if query.ascending else reversed(spans):
        for _, same_time in groupby(archive.between(*span, ascending=query.ascending), key=_timestamp):
            yield from sorted(same_time, key=_order, reverse=not query.ascending)


def _timestamp(entry: ArchivedMessage) -> int:
    return entry.message.timestamp


def _order(entry: ArchivedMessage) -> tuple[int, bytes, str, int]:
    return entry.message.timestamp, _digest(entry), entry.pubsub_topic, _stored_at(entry)


def _stored_at(entry: ArchivedMessage) -> int:
    return entry.message.timestamp or entry.arrived


def _digest(entry: ArchivedMessage) -> bytes:
    return hashlib.sha256(entry.message.content_topic.encode() + entry.message.payload).digest()
