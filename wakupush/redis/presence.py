"""Which processes of the server run, and what fails in them: each writes a field of a hash every few seconds.

Times are those of Redis. A process also says how far its own clock is off that of Redis.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from threading import Event, Thread
from typing import Final, Self, cast

import structlog
from redis import Redis, RedisError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

KEY: Final = "wakupush:processes"
#: Seconds between two writes, and while the process is not ready: nobody shall read for 10 s that it just started.
WRITE_SECONDS: Final = 10.0
UNREADY_WRITE_SECONDS: Final = 1.0
#: Seconds after which a process counts as gone, and after which its field goes.
GONE_SECONDS: Final = 35.0
FORGOTTEN_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """A process, as it described itself last."""

    #: Its command, for example ``worker dispatch``.
    role: str
    host: str
    pid: int
    version: str
    #: Seconds since its start.
    age: float
    #: Seconds since it wrote.
    silence: float
    #: Seconds by which its clock was ahead of Redis'.
    clock_offset: float
    #: The checks of its readiness that fail.
    failing: tuple[str, ...]

    @property
    def is_gone(self) -> bool:
        """Whether it wrote nothing for so long that it was killed, or cannot reach Redis."""
        return self.silence > GONE_SECONDS


class Presence:
    """Writes that this process runs, in a thread, and that it ends with the context; a process that is killed does not.

    Args:
        redis: a client of its own.
        role: its command.
        ready: its checks; they may block.
    """

    def __init__(self, redis: Redis, role: str, ready: Callable[[], Mapping[str, bool]]) -> None:
        self._redis, self._role, self._ready = redis, role, ready
        self._field = f"{role}/{socket.gethostname()}/{os.getpid()}"
        self._version = version("wakupush")
        self._stop = Event()
        self._started: float | None = None
        self._thread = Thread(target=self._run, name="presence", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self._redis.hset(KEY, self._field, "")
        except RedisError as error:
            log.debug("presence_not_ended", error=type(error).__name__)
        self._redis.close()

    def _run(self) -> None:
        is_ready = True
        while True:
            try:
                is_ready = self.write()
            except RedisError as error:
                log.debug("presence_not_written", error=type(error).__name__)
            except Exception:
                # An error in our own code: without this, the process would count as gone.
                log.exception("presence_failed")
            if self._stop.wait(WRITE_SECONDS if is_ready else UNREADY_WRITE_SECONDS):
                return

    def write(self) -> bool:
        """Write that the process runs, and return whether it is ready.

        Raises:
            RedisError: Redis does not answer.
        """
        now = _now(self._redis)
        offset = time.time() - now
        self._started = self._started or now
        failing = sorted(name for name, is_well in self._ready().items() if not is_well)
        facts = {"at": now, "started": self._started, "version": self._version, "failing": failing, "clock": offset}
        self._redis.hset(KEY, self._field, json.dumps(facts))
        return not failing


def forget(redis: Redis) -> None:
    """Remove the fields of processes that ended, or wrote nothing for long.

    Raises:
        RedisError: Redis does not answer.
    """
    now = _now(redis)
    fields = cast("dict[bytes, bytes]", redis.hgetall(KEY))
    old = [name for name, value in fields.items() if not value or now - json.loads(value)["at"] > FORGOTTEN_SECONDS]
    if old:
        redis.hdel(KEY, *old)


def read(redis: Redis) -> list[RunningProcess]:
    """Return all processes that wrote within the last hour or so, and did not end in order.

    Raises:
        RedisError: Redis does not answer.
    """
    now = _now(redis)
    fields = cast("dict[bytes, bytes]", redis.hgetall(KEY))
    processes = []
    for field, value in sorted(fields.items()):
        if not value:
            continue
        role, host, pid = field.decode().split("/")
        facts = json.loads(value)
        processes.append(
            RunningProcess(
                role=role,
                host=host,
                pid=int(pid),
                version=facts["version"],
                age=now - facts["started"],
                silence=now - facts["at"],
                clock_offset=facts["clock"],
                failing=tuple(facts["failing"]),
            )
        )
    return processes


def is_ready(redis: Redis, role: str) -> bool:
    """Return whether a process of this role (its command) runs, and no check of its readiness fails.

    Raises:
        RedisError: Redis does not answer.
    """
    return any(process.role == role and not (process.is_gone or process.failing) for process in read(redis))


def _now(redis: Redis) -> float:
    seconds, microseconds = redis.time()
    return seconds + microseconds / 1e6
