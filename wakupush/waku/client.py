"""HTTP to a Waku node: bounded in time and size, with named errors only."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import Lock
from typing import Self

import httpx2

from wakupush.waku.errors import AnswerTooLarge, NodeUnreachable, NodeUnreadable
from wakupush.waku.rest import check

#: Bytes of an answer at most. Three times as many are in memory while it is parsed.
ANSWER_LIMIT = 64 * 1024 * 1024
#: Bytes of an answer above which a process reads and parses only one at a time.
LARGE_ANSWER = 4 * 1024 * 1024
_one_large_answer = Lock()


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
        """Return the status and the body of an answer; see `_answer`."""
        with self._answer(method, path, value, parameters) as answer:
            return answer

    @contextmanager
    def _answer(
        self, method: str, path: str, value: object = None, parameters: Mapping[str, str] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the status and the body of an answer.

        A body above `LARGE_ANSWER` is to be parsed within the context: no other thread reads one until it ends.

        Raises:
            NodeUnreachable: there is no answer.
            AnswerTooLarge: it has more than `ANSWER_LIMIT` bytes.
            NodeUnreadable: the answer does not end, or cannot be decompressed.
        """
        content = None if value is None else json.dumps(value)
        headers = None if value is None else {"Content-Type": "application/json"}
        with ExitStack() as turn:
            try:
                with self._http.stream(method, path, content=content, headers=headers, params=parameters) as response:
                    status, body = response.status_code, _read(response, self._timeout, turn)
            except httpx2.DecodingError as error:
                raise NodeUnreadable("the answer cannot be decompressed") from error
            except httpx2.RequestError as error:
                raise NodeUnreachable(f"{method} {path}: {type(error).__name__}") from error
            yield status, body


def _read(response: httpx2.Response, seconds: float, turn: ExitStack) -> bytes:
    """Return a whole body; the turn of a large one is taken on the way, and is for the caller to end."""
    deadline = time.monotonic() + seconds
    body = bytearray()
    is_large = False
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > ANSWER_LIMIT:
            raise AnswerTooLarge("the answer is too large")
        if time.monotonic() > deadline:
            raise NodeUnreadable("the answer does not end")
        if len(body) > LARGE_ANSWER and not is_large:
            began = time.monotonic()
            turn.enter_context(_one_large_answer)
            deadline += time.monotonic() - began
            is_large = True
    return bytes(body)
