"""Connections that processes of several kinds open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from wakupush.settings import SettingsError

if TYPE_CHECKING:
    from wakupush.settings import RedisSettings

#: For what can do without Redis: redis-py's own tries would hold it up for seconds.
NO_RETRY: Final = Retry(NoBackoff(), 0)


def open_redis(settings: RedisSettings, **options: Any) -> Redis:
    """Return a Redis client; it connects when it is used.

    Args:
        settings: its URL and time-out.
        options: others of redis-py.

    Raises:
        SettingsError: the URL is none; the client's own words would repeat parts of it, password and all.
    """
    try:
        return Redis.from_url(
            settings.url.get_secret_value(),
            socket_timeout=settings.timeout,
            socket_connect_timeout=settings.timeout,
            **options,
        )
    except ValueError:
        raise SettingsError("WAKUPUSH_REDIS__URL is no URL of a Redis database") from None
