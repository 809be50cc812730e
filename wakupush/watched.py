"""The query topics that the server listens to: a Redis set, which ingest reads and the registration workers fill.

A marker that carries Redis' run id says that the set is complete; after a restart, a wipe or a restore it does not fit
any more, and the set is filled again from Postgres. Topics that nobody needs any more do no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redis import Redis

KEY: Final = "wakupush:watched"
MARKER: Final = "wakupush:watched:complete"


def add(redis: Redis, topics: Collection[bytes]) -> None:
    """Watch these topics (4 bytes each) from now on."""
    if topics:
        redis.sadd(KEY, *topics)


def remove(redis: Redis, topics: Collection[bytes]) -> None:
    """Stop watching these topics (4 bytes each)."""
    if topics:
        redis.srem(KEY, *topics)


def among(redis: Redis, topics: Sequence[bytes]) -> set[bytes]:
    """Return those of the topics (4 bytes each) that are watched."""
    if not topics:
        return set()
    flags = cast("list[int]", redis.smismember(KEY, list(topics)))
    return {topic for topic, flag in zip(topics, flags, strict=True) if flag}


def is_complete(redis: Redis) -> bool:
    """Say whether the set holds every topic that it should."""
    return redis.get(MARKER) == run_id(redis)


def mark_complete(redis: Redis, run_id: bytes) -> None:
    """Say that the set is complete, as of the Redis with this run id."""
    redis.set(MARKER, run_id)


def run_id(redis: Redis) -> bytes:
    """Return the id of this run of Redis, which changes with each start."""
    info = cast("dict[str, str]", redis.info("server"))
    return info["run_id"].encode()
