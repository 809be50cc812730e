"""Requests to a node's REST API out of an event loop.

aiohttp: a request costs 0.4 times the CPU time of httpx2's asynchronous client, see docs/adr/0005.
"""

from __future__ import annotations

import json
from typing import Final, Self

from wakupush.waku.errors import AnswerLost, NodeUnreachable, NodeUnreadable
from wakupush.waku.rest import ANSWER_LIMIT

#: Requests to a node at the same time at most.
MOST_REQUESTS: Final = 8

# aiohttp takes a quarter of the time in which the SDK is imported: it is not, before there is a connection.
# ruff: noqa: PLC0415


class AsyncRest:
    """Connections to one node, of one event loop; they are closed with the context.

    Args:
        url: of the REST API. Proxies of the environment are not used.
        timeout: seconds for one request.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        import aiohttp

        self._url = url.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MOST_REQUESTS),
            timeout=aiohttp.ClientTimeout(total=timeout),
        )

    async def send(self, method: str, path: str, value: object = None) -> tuple[int, bytes]:
        """Send a request and return the status and body of the answer.

        Args:
            method: of HTTP.
            path: percent-encoded.
            value: of the body, as JSON; None sends none.

        Raises:
            NodeUnreachable: no connection; `AnswerLost`: no answer.
            NodeUnreadable: an answer that does not end.
        """
        import aiohttp
        from yarl import URL

        content = None if value is None else json.dumps(value)
        headers = {} if value is None else {"Content-Type": "application/json"}
        try:
            # A topic is one segment of the path, percent-encoded, and must stay so.
            url = URL(self._url + path, encoded=True)
            # No Waku node answers with a redirect. If one were followed, a publish would become a read.
            async with self._session.request(
                method, url, data=content, headers=headers, allow_redirects=False
            ) as answer:
                body = bytearray()
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > ANSWER_LIMIT:
                        raise NodeUnreadable("the answer does not end")
                return answer.status, bytes(body)
        except aiohttp.ClientConnectorError as error:
            raise NodeUnreachable("it cannot be reached") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise AnswerLost(f"{method} {path}: {type(error).__name__}") from error
        except (ValueError, RuntimeError) as error:  # a name or port that is none, or no thread to look it up
            raise NodeUnreachable(f"it cannot be reached: {type(error).__name__}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._session.close()
