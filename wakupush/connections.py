"""Connections that processes of several kinds open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import Redis

from wakupush.settings import SettingsError

if TYPE_CHECKING:
    from wakupush.settings import RedisSettings


def open_redis(settings: RedisSettings) -> Redis:
    """Return a Redis client; it connects when it is used.

    Raises:
        SettingsError: the URL is none; the client's own words would repeat parts of it, password and all.
    """
    try:
        return Redis.from_url(
            settings.url.get_secret_value(),
            socket_timeout=settings.timeout,
            socket_connect_timeout=settings.timeout,
        )
    except ValueError:
        raise SettingsError("WAKUPUSH_REDIS__URL is no URL of a Redis database") from None
