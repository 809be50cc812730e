"""Clients of Redis, or of the primary that Sentinels name."""

from typing import Any, Final
from urllib.parse import urlsplit

from redis import Redis, ResponseError
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from wakupush.runtime.connections.sentinel import follow_primary
from wakupush.runtime.settings import RedisSettings, SettingsError

#: After a refusal redis-py sends the command once more, over a new connection: the refusing server may have been the
#: primary before a failover, and the address leads to another one now. Redis 6.2 does not say READONLY in scripts, so
#: any refusal counts. A lost or late command is not repeated: Redis may have done it, and a second try takes as long.
RETRY: Final = Retry(NoBackoff(), 1, supported_errors=(ResponseError,))


def open_redis(settings: RedisSettings) -> Redis:
    """Return a Redis client; it connects when it is used.

    With Sentinels it asks them for the primary at each new connection, and this process leaves a former primary.

    Args:
        settings: its URL, Sentinels and time-out.

    Raises:
        SettingsError: the URL is not valid. The client's own error text is left out: it would repeat the password.
    """
    options = _options(settings)
    timeouts = {"socket_timeout": settings.timeout, "socket_connect_timeout": settings.timeout}
    if not settings.sentinels:
        return Redis.from_url(settings.url.get_secret_value(), retry=RETRY, **timeouts)
    follow(settings)
    login = {name: options[name] for name in ("username", "password", "db") if name in options}
    primary: Redis = open_sentinel(settings).master_for(  # type: ignore[no-untyped-call]  # it has no types there
        primary_name(settings), retry=RETRY, **login, **timeouts, **tls_options(settings)
    )
    return primary


def follow(settings: RedisSettings) -> None:
    """Let this process leave a former primary, from now on; without Sentinels there is nothing to do."""
    if settings.sentinels:
        follow_primary(lambda: open_sentinel(settings), primary_name(settings))


def open_sentinel(settings: RedisSettings) -> Sentinel:
    """Return a client of the Sentinels; it connects when it is used."""
    return Sentinel(  # type: ignore[no-untyped-call]  # it has no types there
        [_address(address) for address in settings.sentinels],
        min_other_sentinels=settings.min_other_sentinels,
        sentinel_kwargs=sentinel_options(settings),
    )


def primary_name(settings: RedisSettings) -> str:
    """Return the Sentinels' name of the primary: the host of the URL, as it is written there."""
    return urlsplit(settings.url.get_secret_value()).netloc.rpartition("@")[2].partition(":")[0]


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
    if urlsplit(settings.url.get_secret_value()).scheme != "rediss":
        return {}
    options = {name: value for name, value in _options(settings).items() if name.startswith("ssl_")}
    return {"ssl": True, "ssl_cert_reqs": "required", **options}


def _options(settings: RedisSettings) -> dict[str, Any]:
    try:
        return dict(parse_url(settings.url.get_secret_value()))  # type: ignore[no-untyped-call]  # it has no types there
    except ValueError:
        raise SettingsError("WAKUPUSH_REDIS__URL is no URL of a Redis database") from None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
