"""Other people's Stores, which our nodes ask: not too often, and through another node after a failure."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock

from wakupush.waku.errors import NodeError
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Page, Query


@dataclass(slots=True)
class Pace:
    """Spreads the requests of several threads over time."""

    #: Between the beginnings of two requests.
    seconds: float
    stop: Event
    _next: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def wait(self) -> None:
        """Wait for the turn of the next request, or until the process is to end."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self.seconds
        self.stop.wait(turn - now)


class PeerStore:
    """A Store peer.

    Args:
        stores: the peer's Store through each of our nodes.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        self._stores = deque(stores)

    def walk(self, query: Query, *, with_messages: bool) -> Iterator[Page]:
        """Yield the pages that a query finds; see `Store.walk`."""
        with self._next_after_failure():
            yield from self._stores[0].walk(query, with_messages=with_messages)

    def fetch(self, query: Query, hashes: Sequence[bytes]) -> Iterator[Page]:
        """Yield messages by their hashes, in pages; see `Store.fetch`."""
        with self._next_after_failure():
            yield from self._stores[0].fetch(query, hashes)

    @contextmanager
    def _next_after_failure(self) -> Iterator[None]:
        """Let another node ask the peer after this one failed."""
        try:
            yield
        except NodeError:
            self._stores.rotate(-1)
            raise

    def close(self) -> None:
        """Close all connections."""
        for store in self._stores:
            store.close()
