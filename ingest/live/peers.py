"""How many relay peers a node has on each shard: without one a shard is silent, and answers there reach nobody."""

import math
from dataclasses import dataclass
from threading import Event
from typing import Final

import structlog
from redis import Redis, RedisError

from wakupush.redis import left_out
from wakupush.runtime import metrics
from wakupush.waku.errors import NodeError
from wakupush.waku.node import WakuNode

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds between two looks; and after a look that found a shard without peers, which may come soon.
LOOK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RelayPeers:
    """Counts the relay peers of a node, for the metric and for the processes that publish."""

    name: str
    node: WakuNode
    shards: tuple[str, ...]
    redis: Redis
    stop: Event

    def run(self) -> None:
        """Count until `stop` is set, but first let ingest subscribe: before that a node has no peer on a shard."""
        self.stop.wait(AGAIN_SECONDS)
        while not self.stop.is_set():
            lonely = False
            try:
                lonely = self.look()
            except Exception:
                # An error in our own code: without this, the metric would stay as it is.
                log.exception("peers_failed")
            self.stop.wait(AGAIN_SECONDS if lonely else LOOK_SECONDS)

    def look(self) -> bool:
        """Set the metric, NaN for what the node does not say; return whether there is a shard without peers.

        While the node does not answer, processes that publish keep what it said last, for `left_out.HOLDS_SECONDS`.
        """
        counts: dict[str, int] = {}
        lonely: list[str] = []
        try:
            counts = self.node.relay_peers(self.shards)
            is_alone = self.node.health().is_alone
            lonely = [shard for shard in self.shards if is_alone or counts.get(shard) == 0]
            left_out.write_without_peers(self.redis, self.name, lonely)
        except (NodeError, RedisError) as error:
            log.debug("peers_not_counted", node=self.name, error=type(error).__name__)
        for shard in self.shards:
            metrics.RELAY_PEERS.labels(self.name, shard).set(counts.get(shard, math.nan))
        return bool(lonely)
