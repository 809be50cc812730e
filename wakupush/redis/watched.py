"""The query topics that the server listens to, packed in Redis: ingest reads them, the registration workers add them.

A hash has a field for the first two bytes of a topic; its value is the last two bytes of all topics that begin so, one
after the other in any order. Each change and each question is one script, so no process sees half of a change.

A marker says that the topics are complete. It carries Redis' run id, which a restart or a failover changes, and a
random id that a wipe takes away. After either, or after a restore, the marker does not fit any more, even if that
happened while the topics were being filled in. Then they are filled in again from Postgres. Redis keeps writes in their
order. So if the random id is still there, topics may be missing only since they were last seen complete, and only those
are filled in. Obsolete topics do no harm.
"""

from collections.abc import Collection, Sequence
from typing import Final, cast
from uuid import uuid4

from redis import Redis

KEY: Final = "wakupush:watched:topics"
MARKER: Final = "wakupush:watched:complete"
#: An id of the data, from one wipe to the next.
LIFE: Final = "wakupush:watched:life"
#: When they were last seen complete, in seconds since the epoch.
SEEN_AT: Final = "wakupush:watched:seen"

_COMMON: Final = """
local key = KEYS[1]
local function bucket_of(topic) return redis.call('HGET', key, topic:sub(1, 2)) or '' end
local function find(bucket, topic)
    local at = bucket:find(topic:sub(3, 4), 1, true)
    while at and at % 2 == 0 do at = bucket:find(topic:sub(3, 4), at + 1, true) end
    return at
end
"""
_ADD: Final = (
    _COMMON
    + """
local buckets, changed = {}, {}
for _, topic in ipairs(ARGV) do
    local prefix = topic:sub(1, 2)
    local bucket = buckets[prefix] or bucket_of(topic)
    if not find(bucket, topic) then
        bucket = bucket .. topic:sub(3, 4)
        changed[prefix] = true
    end
    buckets[prefix] = bucket
end
for prefix in pairs(changed) do redis.call('HSET', key, prefix, buckets[prefix]) end
"""
)
_REMOVE: Final = (
    _COMMON
    + """
for _, topic in ipairs(ARGV) do
    local bucket = bucket_of(topic)
    local at = find(bucket, topic)
    if at then
        local left = bucket:sub(1, at - 1) .. bucket:sub(at + 2)
        if left == '' then
            redis.call('HDEL', key, topic:sub(1, 2))
        else
            redis.call('HSET', key, topic:sub(1, 2), left)
        end
    end
end
"""
)
#: Returns 1 or 0 for each topic.
_ASK: Final = (
    _COMMON
    + """
local flags = {}
for number, topic in ipairs(ARGV) do flags[number] = find(bucket_of(topic), topic) and 1 or 0 end
return flags
"""
)


def add(redis: Redis, topics: Collection[bytes]) -> None:
    """Watch these topics (4 bytes each) from now on.

    Args:
        topics: sorted ones, if they are many: each bucket is written once for all of its topics.
    """
    if topics:
        redis.register_script(_ADD)(keys=[KEY], args=list(topics))


def remove(redis: Redis, topics: Collection[bytes]) -> None:
    """Stop watching these topics (4 bytes each)."""
    if topics:
        redis.register_script(_REMOVE)(keys=[KEY], args=list(topics))


def among(redis: Redis, topics: Sequence[bytes]) -> set[bytes]:
    """Return the watched ones of these topics (4 bytes each), with one round trip."""
    if not topics:
        return set()
    flags = cast("list[int]", redis.register_script(_ASK)(keys=[KEY], args=list(topics)))
    return {topic for topic, flag in zip(topics, flags, strict=True) if flag}


def is_complete(redis: Redis) -> bool:
    """Return whether every topic is here that should be."""
    return mark_of_complete(redis) is not None


def mark_of_complete(redis: Redis) -> bytes | None:
    """Return the mark of the filling if every topic is here that should be; after a restart or a wipe it is another."""
    marker, life = cast("list[bytes | None]", redis.mget(MARKER, LIFE))
    return marker if life is not None and marker == _mark(redis, life) else None


def begin_filling(redis: Redis) -> bytes:
    """Return the mark of a filling that begins now; processes that fill at the same time have the same mark."""
    redis.set(LIFE, uuid4().hex, nx=True)
    return _mark(redis, cast("bytes | None", redis.get(LIFE)) or b"")


def mark_complete(redis: Redis, mark: bytes) -> None:
    """Write the mark of a filling that has ended.

    The topics then count as complete, unless Redis was restarted or wiped since `begin_filling` returned this mark.
    """
    redis.set(MARKER, mark)


def note_seen(redis: Redis, at: float) -> None:
    """Note that they were complete (`is_complete`) at a time, in seconds since the epoch."""
    redis.set(SEEN_AT, at)


def lacks_since(redis: Redis) -> float | None:
    """Return since when added topics may be missing, in seconds since the epoch; None if all may be missing.

    A replica that became the primary, or a Redis that was killed, lacks the last writes. So it has an earlier time, and
    everything that was written before that time. Topics that were added shortly before it may still be missing:
    allow for replication, for open transactions, and for clocks.
    """
    marker, life, beginning = cast("list[bytes | None]", redis.mget(MARKER, LIFE, SEEN_AT))
    if marker is None or life is None or beginning is None or not marker.endswith(b" " + life):
        return None
    return float(beginning)


def _mark(redis: Redis, life: bytes) -> bytes:
    info = cast("dict[str, str]", redis.info("server"))
    return b"%b %b" % (info["run_id"].encode(), life)
