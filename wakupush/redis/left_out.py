"""The Waku nodes that senders leave out: ingest writes it, every process that publishes reads it."""

import time
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, cast

import structlog
from redis import Redis, RedisError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

KEY: Final = "wakupush:nodes:left_out"
#: Seconds for which this holds unless it is written again. After that senders use all nodes.
HOLDS_SECONDS: Final = 30
#: Seconds for which a process that publishes keeps what it read.
EXCLUDED_SECONDS: Final = 2.0


class NodeFault(StrEnum):
    """Why ingest leaves a node out for sending. Ingest still polls it."""

    #: It does not answer.
    UNREACHABLE = "unreachable"
    #: It misses other people's messages that the other nodes have.
    DEAF = "deaf"
    #: Its publications arrive at no other node that hears.
    MUTE = "mute"


def write(redis: Redis, faults: Mapping[str, NodeFault]) -> None:
    """Write which nodes are at fault, by their names; no others are.

    Raises:
        RedisError: the previous value stays until it expires.
    """
    with redis.pipeline(transaction=True) as pipeline:
        pipeline.delete(KEY)
        if faults:
            pipeline.hset(KEY, mapping={name: fault.value for name, fault in faults.items()})
            pipeline.expire(KEY, HOLDS_SECONDS)
        pipeline.execute()


def read(redis: Redis) -> dict[str, NodeFault]:
    """Return which nodes are at fault, by their names.

    Raises:
        RedisError: Redis failed, so this is not known.
    """
    faults = cast("dict[bytes, bytes]", redis.hgetall(KEY))
    return {name.decode(): NodeFault(fault.decode()) for name, fault in faults.items()}


class ExcludedNodes:
    """The nodes on which nothing is published, as ingest, which hears them, wrote them into Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._names: Collection[str] = ()
        self._expires = 0.0

    def names(self) -> Collection[str]:
        """Return the names of the nodes, read within the last `EXCLUDED_SECONDS`; none while Redis fails."""
        if time.monotonic() >= self._expires:
            self._expires = time.monotonic() + EXCLUDED_SECONDS
            try:
                self._names = read(self._redis)
            except RedisError as error:
                self._names = ()
                log.info("left_out_not_read", error=type(error).__name__)
        return self._names
