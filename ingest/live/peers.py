"""How many relay peers each node has on each shard, for the metric: without one, a shard is silent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Final

import structlog

from wakupush.runtime import metrics
from wakupush.waku.errors import NodeError
from wakupush.waku.node import WakuNode

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds between two looks.
LOOK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class RelayPeers:
    """Counts the relay peers of all nodes."""

    nodes: Mapping[str, WakuNode]
    shards: tuple[str, ...]
    stop: Event

    def run(self) -> None:
        """Count until `stop` is set."""
        while not self.stop.is_set():
            try:
                self.look()
            except Exception:
                # An error in our own code: without this, the metric would stay as it is.
                log.exception("peers_failed")
            self.stop.wait(LOOK_SECONDS)

    def look(self) -> None:
        """Set the metric; NaN for what a node does not say."""
        for name, node in self.nodes.items():
            counts: dict[str, int] = {}
            try:
                counts = node.relay_peers(self.shards)
            except NodeError as error:
                log.debug("peers_not_counted", node=name, error=type(error).__name__)
            for shard in self.shards:
                metrics.RELAY_PEERS.labels(name, shard).set(counts.get(shard, math.nan))
