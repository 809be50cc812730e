"""The state of a development node as a light client: filter subscriptions, unread messages, and their limits.

There is no service node behind it: the node plays that part too.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from http import HTTPStatus

from wakupush.devnet.node.cache import MessageCache
from wakupush.model.waku_message import WakuMessage

#: The answer of a service node: an HTTP status, and a text that is OK after success.
Outcome = tuple[HTTPStatus, str]

#: Content topics of one request at most.
MOST_TOPICS = 100
_OK = HTTPStatus.OK, "OK"


class Bucket:
    """A limit of a rate.

    Args:
        burst: how many are admitted at once.
        rate: how many a second after that.
    """

    def __init__(self, burst: int, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._rate = rate
        self._clock = clock
        self._tokens, self._refilled_at = float(burst), clock()

    def admits(self) -> bool:
        """Return whether one is taken now, and count it if it is."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class NwakuFilter:
    """A nwaku's: one cache of 50 for all shards; 30 requests at once, and one every two seconds after that.

    The light node keeps the topics of a request whatever the service node answers: they are readable then, and empty.
    The service node forgets the client 300 s after its last request.
    """

    CAPACITY = 50
    SECONDS = 300.0
    _RATE_LIMITED = HTTPStatus.TOO_MANY_REQUESTS, "filter request rejected due rate limit exceeded"
    _NOT_FOUND = HTTPStatus.NOT_FOUND, "NOT_FOUND: peer has no subscriptions"
    _TOO_MANY_TOPICS = HTTPStatus.BAD_REQUEST, f"BAD_REQUEST: exceeds maximum content topics: {MOST_TOPICS}"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limit = Bucket(30, 30 / 60, clock)
        self._cache = MessageCache(self.CAPACITY)
        self._subscriptions: set[tuple[str, str]] = set()
        self._end = 0.0

    def subscribe(self, shard: str, content_topics: Collection[str]) -> Outcome:
        """Begin to receive messages of content topics; a shard that the node does not serve is taken too."""
        for topic in content_topics:
            self._cache.subscribe(topic)
        if not self._limit.admits():
            return self._RATE_LIMITED
        if not shard:
            return HTTPStatus.OK, "UNKNOWN"
        if len(content_topics) > MOST_TOPICS:
            return self._TOO_MANY_TOPICS
        self._alive().update((shard, topic) for topic in content_topics)
        self._end = self._clock() + self.SECONDS
        return _OK

    def unsubscribe(self, shard: str, content_topics: Collection[str]) -> Outcome:
        """Stop receiving them, and drop unread messages."""
        for topic in content_topics:
            self._cache.unsubscribe(topic)
        if not self._limit.admits():
            return self._RATE_LIMITED
        for topic in set(content_topics):
            if (shard, topic) not in self._alive():
                return self._NOT_FOUND
            self._subscriptions.remove((shard, topic))
        return _OK

    def unsubscribe_all(self) -> Outcome:
        """Stop receiving any messages, and drop unread ones."""
        self._cache = MessageCache(self.CAPACITY)
        if not self._limit.admits():
            return self._RATE_LIMITED
        if not self._alive():
            return self._NOT_FOUND
        self._subscriptions.clear()
        return _OK

    def ping(self) -> Outcome:
        """Ask whether the service node has any subscription, which keeps them alive."""
        if not self._limit.admits():
            return self._RATE_LIMITED
        if not self._alive():
            return self._NOT_FOUND
        self._end = self._clock() + self.SECONDS
        return _OK

    def deliver(self, shard: str, message: WakuMessage) -> None:
        """Keep a message if its topic is subscribed."""
        if (shard, message.content_topic) in self._alive():
            self._cache.add(message.content_topic, message)

    def read(self, content_topic: str, shard: str = "") -> list[WakuMessage] | None:  # noqa: ARG002 - shards are mixed
        """Take the unread messages of a content topic, of all shards; None if the light node does not know it."""
        return self._cache.read(content_topic)

    def _alive(self) -> set[tuple[str, str]]:
        if self._clock() >= self._end:
            self._subscriptions.clear()
        return self._subscriptions


class GoWakuFilter:
    """A go-waku's: 30 messages of each topic, a request a second, 15 messages a second after a burst of 20.

    Args:
        shards: those that the node serves.
    """

    CAPACITY = 30
    _FAILURE = HTTPStatus.BAD_REQUEST, "subscription failed"

    def __init__(self, shards: AbstractSet[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._shards = shards
        self._limit = Bucket(1, 1.0, clock)
        self._messages = Bucket(20, 15.0, clock)
        self._subscriptions: set[tuple[str, str]] = set()
        self._unread: dict[tuple[str, str], deque[WakuMessage]] = {}

    def subscribe(self, shard: str, content_topics: Collection[str]) -> Outcome:
        """Begin to receive messages of content topics."""
        if not content_topics:
            return _OK
        if len(content_topics) > MOST_TOPICS or not self._limit.admits() or shard not in self._shards:
            return self._FAILURE
        for topic in content_topics:
            self._subscriptions.add((shard, topic))
            self._unread.setdefault((shard, topic), deque(maxlen=self.CAPACITY))
        return _OK

    def unsubscribe(self, shard: str, content_topics: Collection[str]) -> Outcome:
        """Stop receiving them. Unread messages stay."""
        places = {(shard, topic) for topic in content_topics}
        all_did = places <= self._subscriptions
        self._subscriptions -= places
        return _OK if all_did else (HTTPStatus.OK, "can't unsubscribe from devnet")

    def unsubscribe_all(self) -> Outcome:
        """Stop receiving any messages. Unread messages stay."""
        self._subscriptions.clear()
        return _OK

    def ping(self) -> Outcome:
        """Ask whether the service node has any subscription."""
        if not self._limit.admits():
            return HTTPStatus.INTERNAL_SERVER_ERROR, "ping request failed"
        return _OK if self._subscriptions else (HTTPStatus.NOT_FOUND, "peer has no subscription")

    def deliver(self, shard: str, message: WakuMessage) -> None:
        """Keep a message if its topic is subscribed; drop the oldest of the topic if there are too many."""
        place = (shard, message.content_topic)
        if place in self._subscriptions and self._messages.admits():
            self._unread[place].append(message)

    def read(self, content_topic: str, shard: str = "") -> list[WakuMessage] | None:
        """Take the unread messages of a content topic of a shard; None if it was never subscribed."""
        unread = self._unread.get((shard, content_topic))
        if unread is None:
            return None
        messages = list(unread)
        unread.clear()
        return messages


#: The subscriptions of a light client and its unread messages.
Filter = NwakuFilter | GoWakuFilter
