"""HTTP to a Waku node: bounded in time and size, with named errors only."""

from __future__ import annotations

import json
import time
from functools import cache
from typing import TYPE_CHECKING, Self

import httpx2

from wakupush.waku.errors import NodeUnreachable, NodeUnreadable
from wakupush.waku.rest import check

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

#: Bytes of an answer at most; go-waku's default queue of 1000 messages of the largest size stays below.
ANSWER_LIMIT = 256 * 1024 * 1024


@cache
def _trusted() -> ssl.SSLContext:
    """Return the authorities that httpx2 trusts: to read them anew for each client takes 30 ms."""
    return httpx2.create_ssl_context(trust_env=False)


class NodeClient:
    """Connections to one node. One per process, made after a fork; its threads may share it.

    Args:
        url: of the REST API, for example ``http://127.0.0.1:8645``. Proxies of the environment are not used.
        timeout: seconds for the connection, for each read and write, and for the whole body of an answer.
        connections: connections at most.
    """

    def __init__(self, url: str, *, timeout: float = 10.0, connections: int = 8) -> None:
        self._timeout = timeout
        self._http = httpx2.Client(
            base_url=url,
            timeout=httpx2.Timeout(connect=timeout, read=timeout, write=timeout, pool=timeout),
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=False,
            verify=_trusted(),
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _call(self, method: str, path: str, value: object = None, parameters: Mapping[str, str] | None = None) -> bytes:
        """Return the body of a successful answer.

        Raises:
            NodeError: see there.
        """
        status, body = self._send(method, path, value, parameters)
        check(status, body)
        return body

    def _send(
        self, method: str, path: str, value: object = None, parameters: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return the status and the body of an answer.

        Raises:
            NodeUnreachable: there is no answer.
            NodeUnreadable: the answer does not end, or cannot be decompressed.
        """
        content = None if value is None else json.dumps(value)
        headers = None if value is None else {"Content-Type": "application/json"}
        try:
            with self._http.stream(method, path, content=content, headers=headers, params=parameters) as response:
                return response.status_code, _read(response, self._timeout)
        except httpx2.DecodingError as error:
            raise NodeUnreadable("the answer cannot be decompressed") from error
        except httpx2.RequestError as error:
            raise NodeUnreachable(f"{method} {path}: {type(error).__name__}") from error


def _read(response: httpx2.Response, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > ANSWER_LIMIT or time.monotonic() > deadline:
            raise NodeUnreadable("the answer does not end")
    return bytes(body)
