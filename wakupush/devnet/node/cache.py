"""The unread messages of a nwaku: its relay has one such cache, and its light client another."""

import bisect
from itertools import count

from wakupush.model.waku_message import WakuMessage


class MessageCache:
    """The unread messages of all subscribed topics together; none is there twice, not even under two topics.

    For each message that comes, a full cache drops the one with the oldest sender timestamp of those that it has, be
    the new one older still. The last in line takes its place, as in nwaku, so the order is no longer that of arrival.

    Args:
        capacity: messages of all topics together.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._topics: set[str] = set()
        self._line: list[tuple[str, WakuMessage]] = []
        #: Where a message stands in that line.
        self._places: dict[WakuMessage, int] = {}
        self._by_age: list[tuple[int, int, WakuMessage]] = []
        self._serial = count()

    def subscribe(self, topic: str) -> None:
        """Begin to keep messages of a topic."""
        self._topics.add(topic)

    def unsubscribe(self, topic: str) -> None:
        """Forget a topic with its unread messages."""
        self.read(topic)
        self._topics.discard(topic)

    def add(self, topic: str, message: WakuMessage) -> int:
        """Keep a message, unless its topic is not subscribed or it is unread already.

        Returns:
            How many were dropped for it: 0 or 1.
        """
        if topic not in self._topics or message in self._places:
            return 0
        is_full = len(self._line) >= self._capacity
        if is_full:
            self._drop_oldest()
        self._places[message] = len(self._line)
        self._line.append((topic, message))
        bisect.insort(self._by_age, (message.timestamp, next(self._serial), message))
        return int(is_full)

    def read(self, topic: str) -> list[WakuMessage] | None:
        """Take all unread messages of a topic; None if it is not subscribed."""
        if topic not in self._topics:
            return None
        unread = [message for its, message in self._line if its == topic]
        if unread:
            self._line = [entry for entry in self._line if entry[0] != topic]
            self._places = {message: place for place, (_, message) in enumerate(self._line)}
            self._by_age = [entry for entry in self._by_age if entry[2] in self._places]
        return unread

    def __len__(self) -> int:
        """Return how many messages are unread."""
        return len(self._line)

    def _drop_oldest(self) -> None:
        *_, oldest = self._by_age.pop(0)
        place = self._places.pop(oldest)
        last = self._line.pop()
        if last[1] != oldest:
            self._line[place] = last
            self._places[last[1]] = place
