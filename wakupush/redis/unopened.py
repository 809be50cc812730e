"""Watched topics whose traffic is mostly not for us: workers mark them, and ingest limits them."""

from collections.abc import Collection, Sequence
from typing import Final, cast

from redis import Redis

#: Seconds for which a topic is marked.
MARKED_SECONDS: Final = 120

_PREFIX: Final = "wakupush:unopened:"


def mark(redis: Redis, content_topics: Collection[str]) -> None:
    """Mark content topics for some time."""
    with redis.pipeline(transaction=False) as pipeline:
        for topic in content_topics:
            pipeline.set(_PREFIX + topic, 1, ex=MARKED_SECONDS)
        pipeline.execute()


def marked(redis: Redis, content_topics: Sequence[str]) -> set[str]:
    """Return the marked ones of these content topics."""
    if not content_topics:
        return set()
    marks = cast("list[bytes | None]", redis.mget([_PREFIX + topic for topic in content_topics]))
    return {topic for topic, mark in zip(content_topics, marks, strict=True) if mark is not None}
