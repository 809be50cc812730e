"""Clients of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redis import Redis, ResponseError
from redis.backoff import NoBackoff
from redis.retry import Retry

from wakupush.runtime.settings import SettingsError

if TYPE_CHECKING:
    from wakupush.runtime.settings import RedisSettings

#: After a refusal the command is sent once more, over a new connection: who refuses may have been the primary before a
#: failover, and the address leads to another now. Redis 6.2 does not say READONLY in scripts, so any refusal counts.
#: What is lost or late is not sent again: it may have been done, and it would take twice as long.
RETRY: Final = Retry(NoBackoff(), 1, supported_errors=(ResponseError,))


def open_redis(settings: RedisSettings) -> Redis:
    """Return a Redis client; it connects when it is used.

    Args:
        settings: its URL and time-out.

    Raises:
        SettingsError: the URL is none; the client's own words would repeat parts of it, password and all.
    """
    try:
        return Redis.from_url(
            settings.url.get_secret_value(),
            socket_timeout=settings.timeout,
            socket_connect_timeout=settings.timeout,
            retry=RETRY,
        )
    except ValueError:
        raise SettingsError("WAKUPUSH_REDIS__URL is no URL of a Redis database") from None
