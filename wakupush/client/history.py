"""The latest advertisements out of a Store."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from wakupush.client.transport import SHARDS
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

if TYPE_CHECKING:
    from wakupush.protocol.waku_message import WakuMessage

#: Seconds that are looked back: whoever is still there has advertised since.
LOOK_BACK_SECONDS = 2 * 86_400
#: Messages that are looked at; anybody can write to the topic.
MOST_MESSAGES = 100


class History:
    """A Store, asked in a thread.

    Args:
        url: of the REST API of a node with a Store, or with a peer that has one.
        shard: pubsub topic of the advertisements.
    """

    def __init__(self, url: str, shard: str = SHARDS[0]) -> None:
        self._store = Store(url)
        self._shard = shard

    async def latest(self, content_topic: str) -> list[WakuMessage]:
        """Return the latest messages of a content topic, the oldest first.

        Raises:
            NodeError: the Store does not answer.
        """
        return await asyncio.to_thread(self._walk, content_topic)

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _walk(self, content_topic: str) -> list[WakuMessage]:
        now = time.time_ns()
        query = Query(
            pubsub_topic=self._shard,
            content_topics=(content_topic,),
            start=now - LOOK_BACK_SECONDS * 1_000_000_000,
            end=now,
        )
        found: deque[WakuMessage] = deque(maxlen=MOST_MESSAGES)
        for page in self._store.walk(query, with_messages=True):
            found.extend(stored.message for stored in page.found if stored.message is not None)
        return list(found)
