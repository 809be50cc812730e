"""The state of a development node as a light client: filter subscriptions, unread messages, and their limits.

There is no service node behind it: the node plays that part too.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from wakupush.model.waku_message import WakuMessage


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """The differences between the two implementations."""

    #: Unread messages that are kept: of all topics together, or of each content topic of a shard.
    capacity: int
    each_topic: bool
    #: Requests to the service node that it takes within so many seconds.
    requests: int
    seconds: float
    #: Messages a second that the client takes, after a burst; None for any number.
    rate: float | None = None
    burst: int = 0


#: nwaku's: one cache of 50, 30 requests a minute.
NWAKU = FilterSettings(capacity=50, each_topic=False, requests=30, seconds=60.0)
#: go-waku's: 30 of each topic, a request a second, 15 messages a second.
GO_WAKU = FilterSettings(capacity=30, each_topic=True, requests=1, seconds=1.0, rate=15.0, burst=20)


class RequestLimit:
    """The limit of a service node: so many requests within so many seconds. Refused requests do not count."""

    def __init__(self, requests: int, seconds: float) -> None:
        self._seconds = seconds
        self._times: deque[float] = deque(maxlen=requests)

    def admits(self) -> bool:
        """Return whether a request is taken now, and count it if it is."""
        now = time.monotonic()
        if len(self._times) == self._times.maxlen and now - self._times[0] < self._seconds:
            return False
        self._times.append(now)
        return True


class Filter:
    """The subscriptions of a light client and its unread messages."""

    def __init__(self, settings: FilterSettings) -> None:
        self._settings = settings
        self._subscribed: set[tuple[str, str]] = set()
        self._unread: dict[tuple[str, str], deque[WakuMessage]] = {}
        self._order: deque[tuple[str, str]] = deque()
        #: To be asked once before each request to the service node.
        self.limit = RequestLimit(settings.requests, settings.seconds)
        self._tokens, self._refilled = float(settings.burst), time.monotonic()

    @property
    def is_subscribed(self) -> bool:
        """Whether the service node has any subscription."""
        return bool(self._subscribed)

    def subscribe(self, shard: str, content_topics: Collection[str]) -> None:
        """Begin to receive messages of content topics."""
        for topic in content_topics:
            self._subscribed.add((shard, topic))
            self._unread.setdefault((shard, topic), deque())

    def unsubscribe(self, shard: str, content_topics: Collection[str]) -> bool:
        """Stop receiving them; return whether all were subscribed. Unread messages stay."""
        places = {(shard, topic) for topic in content_topics}
        all_did = places <= self._subscribed
        self._subscribed -= places
        return all_did

    def unsubscribe_all(self) -> None:
        """Stop receiving any messages."""
        self._subscribed.clear()

    def deliver(self, shard: str, message: WakuMessage) -> None:
        """Keep a message if its topic is subscribed; drop the oldest if there are too many."""
        place = (shard, message.content_topic)
        if place not in self._subscribed or not self._takes():
            return
        self._unread[place].append(message)
        if self._settings.each_topic:
            if len(self._unread[place]) > self._settings.capacity:
                self._unread[place].popleft()
            return
        self._order.append(place)
        if len(self._order) > self._settings.capacity:
            self._unread[self._order.popleft()].popleft()

    def read(self, content_topic: str, shard: str | None = None) -> list[WakuMessage] | None:
        """Take the unread messages of a content topic, of all shards or of one; None if it was never subscribed."""
        places = [place for place in self._unread if place[1] == content_topic and shard in (None, place[0])]
        if not places:
            return None
        found = [message for place in places for message in self._unread[place]]
        for place in places:
            self._unread[place].clear()
        self._order = deque(place for place in self._order if place not in places)
        return found

    def _takes(self) -> bool:
        if self._settings.rate is None:
            return True
        now = time.monotonic()
        self._tokens = min(self._settings.burst, self._tokens + (now - self._refilled) * self._settings.rate)
        self._refilled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
