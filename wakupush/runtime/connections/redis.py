"""Clients of Redis, or of the primary that Sentinels tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from redis import Redis, ResponseError
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from wakupush.runtime.connections.sentinel import follow_primary
from wakupush.runtime.settings import SettingsError

if TYPE_CHECKING:
    from wakupush.runtime.settings import RedisSettings

#: After a refusal the command is sent once more, over a new connection: who refuses may have been the primary before a
#: failover, and the address leads to another now. Redis 6.2 does not say READONLY in scripts, so any refusal counts.
#: What is lost or late is not sent again: it may have been done, and it would take twice as long.
RETRY: Final = Retry(NoBackoff(), 1, supported_errors=(ResponseError,))


def open_redis(settings: RedisSettings) -> Redis:
    """Return a Redis client; it connects when it is used.

    With Sentinels it asks them for the primary at each new connection, and this process leaves a primary that is none
    any more.

    Args:
        settings: its URL, Sentinels and time-out.

    Raises:
        SettingsError: the URL is none; the client's own words would repeat parts of it, password and all.
    """
    url = settings.url.get_secret_value()
    timeouts = {"socket_timeout": settings.timeout, "socket_connect_timeout": settings.timeout}
    try:
        # It reads the URL, whatever the addresses come from.
        client = Redis.from_url(url, retry=RETRY, **timeouts)
    except ValueError:
        raise SettingsError("WAKUPUSH_REDIS__URL is no URL of a Redis database") from None
    if not settings.sentinels:
        return client
    follow_primary(open_sentinel(settings), primary_name(settings))
    options = client.connection_pool.connection_kwargs
    kept = {name: options[name] for name in ("username", "password", "db") if name in options}
    primary: Redis = open_sentinel(settings).master_for(  # type: ignore[no-untyped-call]  # it has no types there
        primary_name(settings), retry=RETRY, **kept, **timeouts, **tls_options(settings)
    )
    return primary


def open_sentinel(settings: RedisSettings) -> Sentinel:
    """Return a client of the Sentinels; it connects when it is used."""
    return Sentinel(  # type: ignore[no-untyped-call]  # it has no types there
        [_address(each) for each in settings.sentinels],
        min_other_sentinels=settings.min_other_sentinels,
        sentinel_kwargs=sentinel_options(settings),
    )


def primary_name(settings: RedisSettings) -> str:
    """Return what the Sentinels call the primary: the host of the URL."""
    return urlsplit(settings.url.get_secret_value()).hostname or ""


def sentinel_options(settings: RedisSettings) -> dict[str, Any]:
    """Return the options of connections to Sentinels, as redis-py has them."""
    password = settings.sentinel_password
    return {
        "socket_timeout": settings.timeout,
        "socket_connect_timeout": settings.timeout,
        **({} if settings.sentinel_user is None else {"username": settings.sentinel_user}),
        **({} if password is None else {"password": password.get_secret_value()}),
        **tls_options(settings),
    }


def tls_options(settings: RedisSettings) -> dict[str, Any]:
    """Return the options of TLS that a URL with ``rediss:`` stands for, as redis-py has them; else none.

    Certificates are checked unless the URL says otherwise.
    """
    url = urlsplit(settings.url.get_secret_value())
    if url.scheme != "rediss":
        return {}
    given = {name: value for name, value in parse_qsl(url.query) if name.startswith("ssl_")}
    return {"ssl": True, "ssl_cert_reqs": "required", **given}


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
