"""Claims of messages: for a while no other process of ingest enqueues a claimed message."""

from collections.abc import Iterable, Sequence

from redis import Redis


def claim(redis: Redis, hashes: Sequence[bytes], seconds: int) -> list[bool]:
    """Claim messages (hashes of 32 bytes); return for each whether it was free. All are claimed, or none is.

    Args:
        redis: that all processes of ingest share.

    Raises:
        RedisError: nothing is claimed, or everything.
    """
    # A refused command is sent once more. Without a transaction it would meet claims that were made the first time.
    with redis.pipeline(transaction=True) as pipeline:
        for hash_ in hashes:
            pipeline.set(_key(hash_), b"", nx=True, ex=seconds)
        return [bool(was_set) for was_set in pipeline.execute()]


def held(redis: Redis, hashes: Sequence[bytes]) -> set[bytes]:
    """Return those of the messages (hashes of 32 bytes) that are claimed.

    Raises:
        RedisError: it is not known.
    """
    values = redis.mget(map(_key, hashes)) if hashes else []
    return {hash_ for hash_, value in zip(hashes, values, strict=True) if value is not None}


def release(redis: Redis, hashes: Iterable[bytes]) -> None:
    """Give claims back.

    Raises:
        RedisError: they stay, to their end.
    """
    redis.delete(*map(_key, hashes))


def _key(hash_: bytes) -> bytes:
    return b"wakupush:claim:" + hash_
