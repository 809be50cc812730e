"""The Store of a node out of an event loop: all that a query finds.

Source: docs/reference/contracts/waku-rest.md, sections 5 to 7. The remarks of `wakupush.waku.store` apply here too.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlencode

from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.rest import check, while_busy
from wakupush.waku.store_codec import V1, V3, Cursor, Page, Query, decode_v1, decode_v3, speaks_v1


class AsyncStore:
    """A node's Store."""

    def __init__(self, rest: AsyncRest) -> None:
        self._rest = rest

    async def pages(self, query: Query) -> AsyncGenerator[Page]:
        """Yield the pages that a query finds, with their messages, in its order; there may be no end of them.

        Raises:
            NodeError: the Store does not answer.
        """
        at: Mapping[str, str] = {}
        while True:
            page, cursor = await self._ask(query, at)
            yield page
            # go-waku orders messages without a time last.
            if cursor is None or cursor.is_timeless:
                return
            at = cursor.parameters

    @while_busy
    async def _ask(self, query: Query, at: Mapping[str, str]) -> tuple[Page, Cursor | None]:
        """Return a page, and where the next one begins: by Store v3, or by v1 if the node answers as a go-waku."""
        parameters = urlencode({**query.parameters(), "includeData": "true", **at})
        status, body = await self._rest.send("GET", f"{V3}?{parameters}")
        decode = decode_v3
        if speaks_v1(status, body):
            status, body = await self._rest.send("GET", f"{V1}?{parameters}")
            decode = decode_v1
        check(status, body)
        page, cursor = await asyncio.to_thread(decode, body, query.pubsub_topic)
        return query.only(page, timeless=decode is decode_v1), cursor
