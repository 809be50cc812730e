"""Publishing many messages at once.

aiohttp, in one thread, costs a third of the CPU time of a synchronous client in several: see docs/performance.md.
"""

from __future__ import annotations

import asyncio
import json
import random
from threading import Thread
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from wakupush.waku.codec import encode_message
from wakupush.waku.errors import NodeError, NodeUnreachable
from wakupush.waku.rest import check_published, messages_path

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any, TypeVar

    from wakupush.protocol.waku_message import WakuMessage

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
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._connections = connections
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="publisher", daemon=True)
        self._thread.start()
        self._session = self._run(self._open())

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
        self._run(self._session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections), timeout=self._timeout, raise_for_status=False
        )

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
            await self._publish(pubsub_topic, message)
        except NodeUnreachable:
            # Most often the node closed a connection that was idle.
            await asyncio.sleep(random.uniform(0, MOST_WAIT))
            await self._publish(pubsub_topic, message)

    async def _publish(self, pubsub_topic: str, message: WakuMessage) -> None:
        # The topic is one segment of the path, percent-encoded, and must stay so.
        url = URL(self._url + messages_path(pubsub_topic), encoded=True)
        content = json.dumps(encode_message(message))
        try:
            async with self._session.post(url, data=content, headers={"Content-Type": "application/json"}) as answer:
                check_published(answer.status, await answer.content.read(1024))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NodeUnreachable(f"POST: {type(error).__name__}") from error

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
