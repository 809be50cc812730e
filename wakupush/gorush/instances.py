"""Several instances of gorush: posts go in turn to those that listen."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from threading import Event, Lock, Thread
from typing import Final

import structlog

from wakupush.gorush.client import Gorush, PostResult
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.runtime import metrics
from wakupush.runtime.settings import GorushSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds between two health checks of an instance. One that hangs is found within these and a check's timeout.
LOOK_SECONDS: Final = 1.0
#: Outcomes after which gorush has taken nothing: the same may be posted at another instance.
_NOTHING_TAKEN: Final = {Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED}


def open_gorush(settings: GorushSettings) -> Gorush | Instances:
    """Return a client of gorush, or of its instances if there are several."""
    timeouts = {"connect_timeout": settings.connect_timeout, "timeout": settings.timeout}
    if len(settings.instances) > 1:
        return Instances(settings.instances, tries=settings.tries, **timeouts)
    [url] = settings.instances.values()
    return Gorush(url, **timeouts)


class Instances:
    """A client of several instances of gorush. One per process, made after a fork; its threads may share it.

    Args:
        urls: of the instances, by their names.
        connect_timeout: seconds to wait for a connection to one.
        timeout: seconds that a post takes, see `Gorush`.
        tries: instances at which a post is tried at most, as long as nothing of it was taken.
    """

    def __init__(self, urls: Mapping[str, str], *, connect_timeout: float, timeout: float, tries: int) -> None:
        self._clients = {
            name: Gorush(url, connect_timeout=connect_timeout, timeout=timeout) for name, url in urls.items()
        }
        self._connect_timeout = connect_timeout
        self._tries = tries
        self._turns = itertools.count()
        self._listen = dict.fromkeys(self._clients, True)
        self._stop = Event()
        self._watchers: list[Thread] = []
        self._lock = Lock()

    def post(self, notifications: Sequence[Notification]) -> PostResult:
        """Post notifications at an instance, and at another one if nothing was taken; see `Gorush.post`.

        It takes `timeout` and as many times `connect_timeout` as there are tries, at most: an instance that refuses
        late was the last.
        """
        self._watch()
        *others, last = self._instances_in_turn()
        latest = time.monotonic() + self._connect_timeout * self._tries
        for name in others:
            result = self._clients[name].post(notifications)
            if not _NOTHING_TAKEN.issuperset(result.outcomes) or time.monotonic() > latest:
                return result
            log.warning("gorush_passed_over", gorush=name, notifications=len(notifications))
        return self._clients[last].post(notifications)

    def close(self) -> None:
        """Close all connections."""
        self._stop.set()
        for watcher in self._watchers:
            watcher.join()
        for client in self._clients.values():
            client.close()

    def _instances_in_turn(self) -> list[str]:
        """Return the instances to try: those that listen first, each time beginning with another one."""
        names = list(self._clients)
        first = next(self._turns) % len(names)
        names_in_turn = names[first:] + names[:first]
        return sorted(names_in_turn, key=lambda name: not self._listen[name])[: self._tries]

    def _watch(self) -> None:
        with self._lock:
            if not self._watchers:
                self._watchers = [
                    Thread(target=self._look_after, args=(name,), name=f"gorush {name}", daemon=True)
                    for name in self._clients
                ]
                for watcher in self._watchers:
                    watcher.start()

    def _look_after(self, name: str) -> None:
        while True:
            listens = self._clients[name].healthy()
            if listens != self._listen[name]:
                log.warning("gorush_listens" if listens else "gorush_does_not_listen", gorush=name)
            self._listen[name] = listens
            metrics.GORUSH_LISTENS.labels(name).set(listens)
            if self._stop.wait(LOOK_SECONDS):
                return
