"""Whether Stores can be relied on: how far back they have messages, and whether one has what another lacks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final

import structlog

from wakupush.protocol.hashing import message_hash
from wakupush.runtime import metrics
from wakupush.waku.errors import NodeError, NodeUnreachable
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds between audits; each compares as many.
PERIOD_SECONDS: Final = 300
#: Seconds after which a Store gets no more messages of a period: nodes exchange missed ones in minutes.
SETTLED_SECONDS: Final = 600
#: The most messages of a Store to compare.
MOST_COMPARED: Final = 100_000

_NANOSECONDS: Final = 10**9


@dataclass(slots=True, kw_only=True)
class Audit:
    """Audits all Stores, one after the other."""

    stores: Mapping[str, Store]
    shards: tuple[str, ...]
    #: Of the server.
    content_topics: tuple[str, ...]
    #: Seconds for which Stores should keep messages.
    window: float
    stop: Event
    #: By shard: the end of the last comparison, in seconds since the epoch.
    _compared_until: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Audit until `stop` is set."""
        while not self.stop.is_set():
            for shard in self.shards:
                try:
                    self.measure(shard)
                    self.compare(shard, time.time() - SETTLED_SECONDS)
                except Exception:
                    # An error in our own code: without this, the metrics would stay as they are.
                    log.exception("audit_failed", pubsub_topic=shard)
            self.stop.wait(PERIOD_SECONDS)

    def measure(self, shard: str) -> None:
        """Set the metric for the age of the oldest message that each Store has of a shard."""
        for name, store in self.stores.items():
            if self.stop.is_set():
                return
            try:
                oldest = store.oldest(shard)
            except NodeError as error:
                log.info("store_not_audited", store=name, pubsub_topic=shard, error=type(error).__name__)
                continue
            age = 0.0 if oldest is None else max(0.0, time.time() - oldest / _NANOSECONDS)
            metrics.STORE_OLDEST.labels(name, shard).set(age)
            metrics.STORE_WINDOW.labels(name, shard).set(self.window)

    def compare(self, shard: str, until: float) -> dict[str, int]:
        """Compare the Stores' messages on the server's own topics since the last time; count those that each lacks.

        The hashes leave out `meta`, because a Store v1 does. If a Store does not answer, this period is
        compared the next time.

        Args:
            shard: pubsub topic.
            until: up to when, in seconds since the epoch.

        Returns:
            How many messages each Store lacks that another one has; nothing if there is only one Store.
        """
        if len(self.stores) == 1 or self.stop.is_set():
            return {}
        last = self._compared_until.get(shard, 0.0)
        # If the clock was set back, the end of the last comparison says nothing.
        since = max(last if last <= until else 0.0, until - 2 * PERIOD_SECONDS)
        query = Query(
            pubsub_topic=shard,
            content_topics=self.content_topics,
            start=int(since * _NANOSECONDS) + 1,
            end=int(until * _NANOSECONDS),
        )
        try:
            by_store = {name: _hashes(store, query, self.stop) for name, store in self.stores.items()}
        except NodeError as error:
            log.info("stores_not_compared", pubsub_topic=shard, error=type(error).__name__)
            return {}
        self._compared_until[shard] = until
        everything = set().union(*by_store.values())
        lacking = {name: len(everything - hashes) for name, hashes in by_store.items()}
        for name, count in lacking.items():
            metrics.STORES_COMPARED.labels(name).inc(len(everything))
            metrics.STORE_LACKS.labels(name).inc(count)
            if count:
                log.warning("store_lacks_messages", store=name, pubsub_topic=shard, lacks=count, of=len(everything))
        return lacking


def _hashes(store: Store, query: Query, stop: Event) -> set[bytes]:
    """Return the hashes (32 bytes) that messages have without `meta`.

    Raises:
        NodeError: the Store failed, or the process is to end.
    """
    hashes: set[bytes] = set()
    for page in store.walk(query, with_messages=True):
        messages = [entry.message for entry in page.messages if entry.message is not None and entry.message.timestamp]
        hashes.update(message_hash(query.pubsub_topic, replace(message, meta=b"")) for message in messages)
        if stop.is_set():
            raise NodeUnreachable("the process is to end")
        if len(hashes) >= MOST_COMPARED:
            break
    return hashes
