"""Shadow: another server with the same key answers and pushes, and this one only decides and stores.

The mode is one for all processes: a row in Postgres. `WAKUPUSH_SHADOW` begins it, `wakupush shadow end` ends it.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import structlog

from wakupush.postgres import shadow
from wakupush.server.outdated import end_if_outdated, end_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection

    from wakupush.model.shadow import ShadowState
    from wakupush.runtime.settings import Settings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds after which a process that found no shadow looks again: another one may have begun it.
LOOK_SECONDS: Final = 10.0
#: Seconds by which the clocks of a process and of Postgres may differ.
SKEW_SECONDS: Final = 60.0
#: When this process, or the one it was forked from, was started.
_STARTED: Final = time.time()


class ShadowOverError(Exception):
    """This process was started in shadow, but the shadow had ended before."""


class Shadow:
    """What a process knows of the shadow. Its threads may share it."""

    def __init__(self) -> None:
        self._absent_until = -math.inf
        self._told: ShadowState | None = None

    def answers_since(self, connection: Connection) -> float:
        """Return from when on messages are answered and pushed, in seconds since the epoch.

        That is minus infinity if this server is the only one, and infinity while another one answers everything.
        """
        if time.monotonic() < self._absent_until:
            return -math.inf
        state = shadow.state(connection)
        if state is None:
            self._absent_until = time.monotonic() + LOOK_SECONDS
            return -math.inf
        if state != self._told:
            self._told = state
            log.info("in_shadow" if state.ended is None else "shadow_ended", answers_since=state.answers_since)
        return math.inf if state.answers_since is None else state.answers_since

    def is_on(self, connection: Connection) -> bool:
        """Say whether another server answers everything."""
        return self.answers_since(connection) == math.inf


def look_with(settings: Settings) -> Callable[[Connection], None]:
    """Return the check that a process which answers or pushes makes at each new connection."""

    def look(connection: Connection) -> None:
        end_if_outdated(connection)
        if settings.shadow:
            _begin(connection)

    return look


def _begin(connection: Connection) -> None:
    """Begin the shadow, unless that was done before; end a process that was started in shadow after the shadow's end.

    Otherwise it would answer and push, although its setting says that it never does.

    Args:
        connection: new, in autocommit mode.

    Raises:
        ShadowOverError: the process was started after the end.
    """
    shadow.begin(connection)
    state = shadow.state(connection)
    if state is not None and state.ended is not None and state.ended < _STARTED - SKEW_SECONDS:
        log.critical("shadow_over", reason="`wakupush shadow end` was run: take WAKUPUSH_SHADOW away")
        end_process()
        raise ShadowOverError
