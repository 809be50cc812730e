"""The latest advertisements out of a Store."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from wakupush.client.transport import SHARDS
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.rest import check
from wakupush.waku.store import V1, V3, speaks_v1, while_busy
from wakupush.waku.store_codec import Query, decode_v1, decode_v3

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wakupush.model.waku_message import WakuMessage
    from wakupush.waku.store_codec import Cursor, Page

#: Seconds that are looked back: whoever is still there has advertised since.
LOOK_BACK_SECONDS = 2 * 86_400
#: Pages of 100 messages that are looked at: anybody can write to the topic.
MOST_PAGES = 20


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

        That is usually the first page, and tells everything. Strangers can fill the newest pages, and then hide what is
        older than their last 2,000 messages.

        Args:
            content_topic: of the messages.
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
        async with AsyncRest(self._url) as rest:
            at: Mapping[str, str] = {}
            for _ in range(MOST_PAGES):
                page, cursor = await _ask(rest, query, at)
                messages = [stored.message for stored in page.found if stored.message is not None]
                wanted = await asyncio.to_thread(list, filter(is_wanted, messages))
                # In a go-waku's order, what has no time comes last.
                if wanted or cursor is None or cursor.is_timeless:
                    return sorted(wanted, key=lambda message: message.timestamp)
                at = cursor.parameters
        return []


@while_busy
async def _ask(rest: AsyncRest, query: Query, at: Mapping[str, str]) -> tuple[Page, Cursor | None]:
    """Return a page, and where the next one begins: by Store v3, or by v1 where the node answers as a go-waku."""
    parameters = urlencode({**query.parameters(), "includeData": "true", **at})
    status, body = await rest.send("GET", f"{V3}?{parameters}")
    decode = decode_v3
    if speaks_v1(status, body):
        status, body = await rest.send("GET", f"{V1}?{parameters}")
        decode = decode_v1
    check(status, body)
    page, cursor = await asyncio.to_thread(decode, body, query.pubsub_topic)
    return query.only(page, timeless=decode is decode_v1), cursor
