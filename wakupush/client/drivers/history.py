"""The latest advertisements from a Store."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing

from wakupush.client.drivers.transport import SHARDS
from wakupush.model.waku_message import WakuMessage
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.async_store import AsyncStore
from wakupush.waku.store_codec import Query

#: How far back to look, in seconds: a client that still runs has advertised within that time.
LOOK_BACK_SECONDS = 2 * 86_400
#: Pages to look at: a limit, as anybody can write to the topic.
MOST_PAGES = 125


class History:
    """A Store.

    Args:
        url: of the REST API of a node with a Store, or with a peer that has one.
        shard: pubsub topic of the advertisements.
    """

    def __init__(self, url: str, shard: str = SHARDS[0]) -> None:
        self._url = url
        self._shard = shard

    async def latest(self, content_topic: str, is_wanted: Callable[[WakuMessage], bool]) -> list[WakuMessage]:
        """Return the wanted messages of the newest page that has any, the oldest first.

        That is usually the first page, and enough. Strangers can fill the newest pages, and then hide what is older
        than their last 2,000 messages.

        Args:
            is_wanted: called in a thread.

        Raises:
            NodeError: the Store does not answer.
        """
        now = time.time_ns()
        query = Query(
            pubsub_topic=self._shard,
            content_topics=(content_topic,),
            start=now - LOOK_BACK_SECONDS * 1_000_000_000,
            end=now,
            ascending=False,
        )
        async with AsyncRest(self._url) as rest, aclosing(AsyncStore(rest).pages(query)) as pages:
            looked_at = 0
            async for page in pages:
                messages = [entry.message for entry in page.messages if entry.message is not None]
                matches = await asyncio.to_thread(list, filter(is_wanted, messages))
                if matches:
                    return sorted(matches, key=lambda message: message.timestamp)
                looked_at += 1
                if looked_at == MOST_PAGES:
                    break
        return []
