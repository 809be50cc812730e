"""Beacons: messages that show whether a node's publications arrive at the others."""

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from threading import Event
from typing import Final

import structlog
from redis import Redis, RedisError

from wakupush.ingest.live.hearing import Hearing
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.topics import content_topic
from wakupush.redis import left_out
from wakupush.redis.left_out import NodeFault
from wakupush.runtime import metrics
from wakupush.waku.errors import NodeError
from wakupush.waku.node import WakuNode

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds between beacons on a node and shard: a message of 400 bytes, which no Store keeps.
BEACON_SECONDS: Final = 10.0
#: Seconds between two judgements of the nodes.
LOOK_SECONDS: Final = 1.0
#: A node that takes longer to fail gets no further beacons in this turn.
SLOW_SECONDS: Final = 1.0
#: Bytes of a beacon: those of an ordinary envelope.
BEACON_BYTES: Final = 300


@dataclass(slots=True)
class Beacons:
    """Publishes beacons on every node, and writes into Redis which nodes are at fault on which shards."""

    nodes: Mapping[str, WakuNode]
    shards: tuple[str, ...]
    hearing: Hearing
    redis: Redis
    stop: Event
    #: The content topic of all beacons of this process; it looks like any user's.
    topic: str = field(default_factory=lambda: content_topic(random.randbytes(8).hex()))
    _faults: Mapping[tuple[str, str], NodeFault] = field(default_factory=dict)

    def run(self) -> None:
        """Publish beacons and report faults until `stop` is set."""
        due = time.monotonic()
        while not self.stop.wait(LOOK_SECONDS):
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + BEACON_SECONDS
                    self.publish()
                self.report()
            except Exception:
                # An error in our own code: without this, nodes at fault would go on being used.
                log.exception("beacons_failed")

    def publish(self) -> None:
        """Publish a beacon on each node and shard, but no further ones on a node that hangs: the others wait for it.

        A beacon that a node does not take shows nothing.
        """
        for name, node in self.nodes.items():
            for shard in self.shards:
                message = WakuMessage(
                    payload=random.randbytes(BEACON_BYTES),
                    content_topic=self.topic,
                    version=1,
                    timestamp=time.time_ns(),
                    ephemeral=True,
                )
                beacon = message_hash(shard, message)
                self.hearing.note_beacon(name, shard, beacon)
                start = time.monotonic()
                try:
                    node.publish(shard, message)
                except NodeError as error:
                    self.hearing.forget_beacon(beacon)
                    metrics.BEACONS.labels(name, "refused").inc()
                    log.debug("beacon_not_taken", node=name, pubsub_topic=shard, error=type(error).__name__)
                    if time.monotonic() - start > SLOW_SECONDS:
                        break
                else:
                    metrics.BEACONS.labels(name, "published").inc()

    def note_heard(self, node: str, shard: str, messages: Iterable[WakuMessage]) -> None:
        """Note which beacons are among the messages that a node had."""
        beacons = [message_hash(shard, message) for message in messages if self.is_beacon(message)]
        if beacons:
            self.hearing.note_beacons_heard(node, beacons)

    def is_beacon(self, message: WakuMessage) -> bool:
        """Return whether a message is a beacon of this process."""
        return message.content_topic == self.topic

    def report(self) -> None:
        """Report in logs, in metrics and in Redis which nodes are at fault now."""
        faults = self.hearing.faults()
        for name, shard in product(self.nodes, self.shards):
            fault, before = faults.get((name, shard)), self._faults.get((name, shard))
            for kind in NodeFault:
                metrics.NODE_FAULT.labels(name, shard, kind).set(kind is fault)
            if fault is not before:
                event = "node_left_out" if fault else "node_taken_in"
                log.warning(event, node=name, pubsub_topic=shard, fault=fault, before=before)
        self._faults = faults
        try:
            left_out.write(self.redis, faults, self.shards)
        except RedisError as error:
            log.info("faults_not_written", error=type(error).__name__)
