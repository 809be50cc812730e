"""Leaving a former primary of Redis.

A primary that falls silent closes no connection: its clients wait until a time-out, one connection after the other, for
more than a minute. So each process asks the Sentinels. As soon as there is another primary, it shuts the connections to
the old one. Its clients then connect again, to the new primary.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final

import structlog
from redis import RedisError
from redis.sentinel import Sentinel

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds between questions.
ASK_SECONDS: Final = 1.0
#: The open files of a process, on Linux and macOS.
_FILES: Final = Path("/dev/fd")

#: Ids of processes that have their thread: a child has none of its parent's.
_processes: set[int] = set()


def follow_primary(open_sentinel: Callable[[], Sentinel], name: str) -> None:
    """Shut connections to a former primary from now on, in a thread of this process; once is enough.

    Args:
        open_sentinel: returns a client of all Sentinels, for this thread alone.
    """
    if os.getpid() not in _processes:
        _processes.add(os.getpid())
        Thread(target=_follow, args=(open_sentinel(), name), name="redis primary", daemon=True).start()


def _follow(sentinel: Sentinel, name: str) -> None:
    primary: tuple[str, int] | None = None
    while True:
        # Sentinels that do not answer, or a process that cannot open one more file, may do so in a second.
        with suppress(RedisError, OSError):
            address = sentinel.discover_master(name)  # type: ignore[no-untyped-call]  # it has no types there
            if primary is not None and address != primary:
                shut = shut_connections(primary)
                log.warning("redis_primary_changed", primary=f"{address[0]}:{address[1]}", connections_shut=shut)
            primary = address
        time.sleep(ASK_SECONDS)


def shut_connections(address: tuple[str, int]) -> int:
    """Shut all connections of this process to an address (host and port), and return how many there were.

    A client that waits for an answer on one of them gets its end at once.

    Raises:
        OSError: the open files cannot be listed.
    """
    try:
        addresses = {info[4][:2] for info in socket.getaddrinfo(*address, type=socket.SOCK_STREAM)}
    except OSError:
        addresses = {address}
    shut = 0
    for file in list(_FILES.iterdir()):
        with suppress(OSError), _socket(int(file.name)) as connection:  # it is closed by now, or not connected
            if connection.getpeername()[:2] in addresses:
                connection.shutdown(socket.SHUT_RDWR)
                shut += 1
    return shut


@contextmanager
def _socket(file: int) -> Iterator[socket.socket]:
    """Open an open file once more, as a socket.

    Raises:
        OSError: it is not a socket, or not open any more.
    """
    copy = os.dup(file)
    try:
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with connection:
        yield connection
