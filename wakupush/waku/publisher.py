"""Publishing many messages at once.

aiohttp, in one thread, costs a third of the CPU time of a synchronous client in several: see docs/performance.md.
"""

from __future__ import annotations

import asyncio
import random
from threading import Thread
from typing import TYPE_CHECKING

from wakupush.waku.async_relay import AsyncRelay
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.errors import NodeError, NodeUnreachable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any, TypeVar

    from wakupush.model.waku_message import WakuMessage

    T = TypeVar("T")

#: Largest wait in seconds before a message is published once more.
MOST_WAIT = 0.3


class Publisher:
    """A client of one node that only publishes. One per process, made after a fork; its threads may share it.

    Args:
        url: of the REST API. Proxies of the environment are not used.
        timeout: seconds for one request.
        connections: requests at the same time at most.
    """

    def __init__(self, url: str, *, timeout: float, connections: int) -> None:
        self._connections = connections
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="publisher", daemon=True)
        self._thread.start()
        self._rest = self._run(self._open(url, timeout))
        self._relay = AsyncRelay(self._rest)

    def publish(self, messages: Sequence[tuple[str, WakuMessage]]) -> list[NodeError | None]:
        """Publish messages side by side, and return for each what went wrong.

        The first for which the node is unreachable ends it: the others are not tried, so that a node that hangs holds
        nobody up for longer than one message does.

        Args:
            messages: each with its shard.
        """
        return self._run(self._publish_all(messages))

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._run(self._rest.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self, url: str, seconds: float) -> AsyncRest:
        return AsyncRest(url, timeout=seconds, connections=self._connections)

    async def _publish_all(self, messages: Sequence[tuple[str, WakuMessage]]) -> list[NodeError | None]:
        gate = asyncio.Semaphore(self._connections)
        unreachable: list[NodeUnreachable] = []

        async def publish(pubsub_topic: str, message: WakuMessage) -> NodeError | None:
            async with gate:
                if unreachable:
                    return unreachable[0]
                try:
                    await self._publish_again(pubsub_topic, message)
                except NodeUnreachable as error:
                    unreachable.append(error)
                    return error
                except NodeError as error:
                    return error
                return None

        return list(await asyncio.gather(*(publish(topic, message) for topic, message in messages)))

    async def _publish_again(self, pubsub_topic: str, message: WakuMessage) -> None:
        try:
            await self._relay.publish(pubsub_topic, message)
        except NodeUnreachable:
            # Most often the node closed a connection that was idle.
            await asyncio.sleep(random.uniform(0, MOST_WAIT))
            await self._relay.publish(pubsub_topic, message)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
