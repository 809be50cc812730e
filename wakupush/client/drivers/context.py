"""The context that the parts of a client share."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from wakupush.client.config import Config
from wakupush.client.drivers.storage import Storage
from wakupush.client.drivers.transport import Transport
from wakupush.client.events import Event, Unsent
from wakupush.client.rules.accounts import Account
from wakupush.protocol import topics
from wakupush.waku.errors import NodeError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A client's account, storage, transport and clock."""

    account: Account
    transport: Transport
    storage: Storage
    config: Config
    #: Hands an event to the app.
    tell: Callable[[Event], None]
    #: Seconds since the epoch.
    now: Callable[[], float]
    #: For jitter.
    random: Random

    def report_unsent(self, what: str, error: Exception) -> None:
        """Log that something was not sent, and tell the app; the text of an error that is no node's may hold secrets.

        Args:
            what: the event's name in the log.
        """
        text = str(error) if isinstance(error, NodeError) else type(error).__name__
        log.warning("%s: %s", what, text)
        self.tell(Unsent(text))


class Signal:
    """Wakes all tasks that wait for something to change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake all waiting tasks, so that they check again."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, at most so many seconds."""
        event = self._event
        try:
            async with asyncio.timeout(None if seconds == math.inf else max(0.0, seconds)):
                await event.wait()
        except TimeoutError:
            pass

    async def wait_until(self, predicate: Callable[[], bool], seconds: float) -> bool:
        """Wait until the predicate holds, at most so many seconds, and return whether it does."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not predicate():
            rest = deadline - asyncio.get_running_loop().time()
            if rest <= 0:
                return False
            await self.wait(rest)
        return True


_symmetric_key = lru_cache(maxsize=10_000)(topics.symmetric_key)


async def topic_key(name: str) -> bytes:
    """Return the key of a topic, 32 bytes. Deriving it takes 12 to 25 ms: it runs in a thread and is cached."""
    return await asyncio.to_thread(_symmetric_key, name)
