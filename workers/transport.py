"""kombu's transport over Redis, changed: a worker survives a Redis that dies at any moment, and reuses clients."""

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ConnectionError as LostConnection


class QoS(redis.QoS):
    """The messages under way; each takes a place until it is acknowledged.

    Celery logs an acknowledgement that failed, and forgets the message. kombu 5.7 does not: a worker of one process
    takes no further task. Here the place becomes free; the message comes back by the visibility time-out.
    """

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message.

        Raises:
            RedisError: Redis has not heard of it.
        """
        try:
            super().ack(delivery_tag)
        finally:
            super(redis.QoS, self).ack(delivery_tag)  # the place in memory alone

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Put a message back, or drop it.

        Raises:
            RedisError: Redis has not heard of it.
        """
        try:
            super().reject(delivery_tag, requeue=requeue)
        finally:
            super(redis.QoS, self).ack(delivery_tag)  # the place in memory alone


class Channel(redis.Channel):
    """A channel that raises an error of its own when its connection is gone.

    A task that was under way when its connection was lost is acknowledged, or put back, on a channel without a
    connection. kombu 5.7 looks for the address there and finds None: an `AttributeError`, which ends the worker. The
    error raised here is one that Celery handles as a lost connection. The task comes back by the visibility time-out;
    what it did is in the ledger, or under a lease.
    """

    QoS = QoS
    #: The client of the channel's pool of connections.
    _plain: Any = None

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        connection: Any = self.connection
        if connection is None or connection.client is None:
            raise LostConnection("the connection was given up")
        parameters: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]  # not in its stubs
        return parameters

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Return a client of the channel's pool of connections.

        kombu makes one for each command, which takes a sixth of the time of a worker's parent process.
        """
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]  # not in its stubs
        if self._plain is None or self._plain.connection_pool is not self.pool:
            self._plain = super()._create_client()  # type: ignore[misc]  # likewise
        return self._plain


class RedisTransport(redis.Transport):
    """The transport of the workers."""

    Channel = Channel


class SentinelChannel(Channel, redis.SentinelChannel):
    """The same to the primary that Sentinels name."""


class SentinelTransport(redis.SentinelTransport):
    """The transport of workers whose Redis has Sentinels."""

    Channel = SentinelChannel


def install() -> None:
    """Make kombu use these transports in this process."""
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:{RedisTransport.__name__}"))
    TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{SentinelTransport.__name__}"
