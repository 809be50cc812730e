"""The Waku nodes that senders leave out, on single shards or on all: ingest writes it, processes that publish read it.

The hash in Redis has a field for each node that is at fault on all shards, by its name, and one for each other shard on
which a node is at fault, by name and shard. Besides, each node has a key with the shards on which it has no relay peer.
"""

import time
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, cast

import structlog
from redis import Redis, RedisError
from redis.typing import EncodableT, FieldT

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

KEY: Final = "wakupush:nodes:left_out"
#: Followed by the name of a node.
WITHOUT_PEERS: Final = "wakupush:nodes:without_peers:"
#: In place of a shard.
ALL_SHARDS: Final = ""
#: Seconds for which this holds unless it is written again. After that senders use all nodes.
HOLDS_SECONDS: Final = 30
#: Seconds for which a process that publishes keeps what it read.
EXCLUDED_SECONDS: Final = 2.0


class NodeFault(StrEnum):
    """Why ingest leaves a node out for sending on a shard. Ingest still polls it."""

    #: It does not answer.
    UNREACHABLE = "unreachable"
    #: It misses other people's messages that the other nodes have.
    DEAF = "deaf"
    #: Its publications arrive at no other node that hears.
    MUTE = "mute"


def write(redis: Redis, faults: Mapping[tuple[str, str], NodeFault], shards: Collection[str]) -> None:
    """Write which nodes are at fault on which shards, by name and shard; no others are.

    Args:
        shards: all that the server reads.

    Raises:
        RedisError: the previous value stays until it expires.
    """
    fields: dict[FieldT, EncodableT] = {}
    for (name, shard), fault in faults.items():
        is_everywhere = all((name, each) in faults for each in shards)
        fields[name if is_everywhere else f"{name} {shard}"] = fault.value
    with redis.pipeline(transaction=True) as pipeline:
        pipeline.delete(KEY)
        if fields:
            pipeline.hset(KEY, mapping=fields)
            pipeline.expire(KEY, HOLDS_SECONDS)
        pipeline.execute()


def read(redis: Redis) -> dict[tuple[str, str], NodeFault]:
    """Return which nodes are at fault, by name and shard; that is `ALL_SHARDS` for a node that is so on all of them.

    Raises:
        RedisError: Redis failed, so this is not known.
    """
    faults = cast("dict[bytes, bytes]", redis.hgetall(KEY))
    places = {field.decode().partition(" "): NodeFault(fault.decode()) for field, fault in faults.items()}
    return {(name, shard): fault for (name, _, shard), fault in places.items()}


def write_without_peers(redis: Redis, name: str, shards: Collection[str]) -> None:
    """Write on which shards a node has no relay peer.

    Raises:
        RedisError: the previous value stays until it expires.
    """
    redis.set(WITHOUT_PEERS + name, " ".join(shards), ex=HOLDS_SECONDS)


def read_without_peers(redis: Redis, names: Collection[str]) -> set[tuple[str, str]]:
    """Return which of these nodes have no relay peer on which shards, by name and shard.

    Raises:
        RedisError: Redis failed, so this is not known.
    """
    values = cast("list[bytes | None]", redis.mget([WITHOUT_PEERS + name for name in names]))
    return {
        (name, shard) for name, value in zip(names, values, strict=True) for shard in (value or b"").decode().split()
    }


class ExcludedNodes:
    """The nodes on which nothing is published, as ingest, which hears them, wrote them into Redis.

    All is read within the last `EXCLUDED_SECONDS`. While Redis fails, what it said last holds for `HOLDS_SECONDS`;
    then no node is excluded.

    Args:
        redis: with a time-out that an answer can wait for: it was looked at before, and may not be true long after.
        nodes: the names of all, at least one.
    """

    def __init__(self, redis: Redis, nodes: Collection[str]) -> None:
        self._redis = redis
        self._nodes = nodes
        self._places: Collection[tuple[str, str]] = ()
        self._without_peers: Collection[tuple[str, str]] = ()
        self._expires = 0.0
        #: When all was read, in monotonic seconds.
        self._read_at = 0.0

    def names(self, shard: str) -> Collection[str]:
        """Return the names of the nodes that are at fault on a shard, or have no relay peer there."""
        self._read()
        return {name for name, which in self._places if which in {ALL_SHARDS, shard}} | self.without_peers(shard)

    def without_peers(self, shard: str) -> set[str]:
        """Return the names of the nodes without a relay peer on a shard, as far as they say how many they have."""
        self._read()
        return {name for name, which in self._without_peers if which == shard}

    def _read(self) -> None:
        if time.monotonic() < self._expires:
            return
        self._expires = time.monotonic() + EXCLUDED_SECONDS
        try:
            self._places = read(self._redis)
            self._without_peers = read_without_peers(self._redis, self._nodes)
            self._read_at = time.monotonic()
        except RedisError as error:
            if time.monotonic() - self._read_at > HOLDS_SECONDS:
                self._places = self._without_peers = ()
            log.info("left_out_not_read", error=type(error).__name__)
