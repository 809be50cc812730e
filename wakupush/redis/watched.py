"""The query topics that the server listens to: a Redis set, which ingest reads and the registration workers fill.

A marker says that the set is complete. It carries Redis' run id, which a restart changes, and a random id that a wipe
takes away: after either, or a restore, it does not fit any more, also if that happened while the set was being filled.
Then it is filled again from Postgres. Topics that nobody needs any more do no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redis import Redis

KEY: Final = "wakupush:watched"
MARKER: Final = "wakupush:watched:filled"
#: An id of the data, from one wipe to the next.
LIFE: Final = "wakupush:watched:life"


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
    marker, life = cast("list[bytes | None]", redis.mget(MARKER, LIFE))
    return life is not None and marker == _mark(redis, life)


def begin_filling(redis: Redis) -> bytes:
    """Return the mark of a set that is filled from now on; all who fill it at the same time have the same."""
    redis.set(LIFE, uuid4().hex, nx=True)
    return _mark(redis, cast("bytes | None", redis.get(LIFE)) or b"")


def mark_complete(redis: Redis, mark: bytes) -> None:
    """Say that the set is complete, unless Redis was started anew or wiped since `begin_filling` returned this mark."""
    redis.set(MARKER, mark)


def _mark(redis: Redis, life: bytes) -> bytes:
    info = cast("dict[str, str]", redis.info("server"))
    return b"%b %b" % (info["run_id"].encode(), life)
