"""HTTP to a Waku node: bounded in time and size, with named errors only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Self
from urllib.parse import quote, urlencode

import pycurl

from wakupush.runtime.connections.curl import CurlHandles, curl_handle, set_content
from wakupush.waku.errors import AnswerTooLarge, NodeUnreachable, NodeUnreadable
from wakupush.waku.rest import ANSWER_LIMIT

#: Bytes of an answer above which a process reads and parses only one at a time.
LARGE_ANSWER = 4 * 1024 * 1024
_one_large_answer = Lock()


class NodeClient:
    """Connections to one node. One per process, made after a fork; its threads may share it.

    Args:
        url: of the REST API, for example ``http://127.0.0.1:8645``. Proxies of the environment are not used.
        timeout: seconds until an answer begins, and for its body; up to one more if the node is silent.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._handles = CurlHandles(self._open)

    def close(self) -> None:
        """Close all connections."""
        self._handles.close()

    def _open(self) -> pycurl.Curl:
        handle = curl_handle(timeout=None, connect_timeout=self._timeout)
        handle.setopt(pycurl.ACCEPT_ENCODING, "gzip, deflate")
        handle.setopt(pycurl.NOPROGRESS, 0)
        return handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _send(self, path: str, value: object = None, parameters: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Return the status and the body of an answer; see `_answer`."""
        with self._answer(path, value, parameters) as answer:
            return answer

    @contextmanager
    def _answer(
        self, path: str, value: object = None, parameters: Mapping[str, str] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the status and the body of the answer to a GET, or to a POST if there is a value, which goes as JSON.

        A body above `LARGE_ANSWER` is to be parsed within the context: no other thread reads one until it ends.

        Raises:
            NodeUnreachable: there is no answer.
            AnswerTooLarge: it has more than `ANSWER_LIMIT` bytes.
            NodeUnreadable: the answer does not end, or cannot be decompressed.
        """
        content = None if value is None else json.dumps(value).encode()
        query = "" if parameters is None else "?" + urlencode(parameters, quote_via=quote)
        with ExitStack() as turn:
            answer = _Answer(self._timeout, turn)
            with self._handles.take() as handle:
                handle.setopt(pycurl.URL, f"{self.url}{path}{query}".encode())
                set_content(handle, content)
                handle.setopt(pycurl.WRITEFUNCTION, answer.take)
                handle.setopt(pycurl.XFERINFOFUNCTION, answer.is_late)
                try:
                    handle.perform()
                except pycurl.error as error:
                    raise answer.error(int(error.args[0]), path) from None
                status = handle.getinfo(pycurl.RESPONSE_CODE)
            body = bytes(answer.body)
            answer.body.clear()  # the idle handle keeps its callbacks
            yield status, body


class _Answer:
    """An answer while it arrives; the turn of a large one is taken on the way, and is for the caller to end."""

    def __init__(self, seconds: float, turn: ExitStack) -> None:
        self.body = bytearray()
        self._seconds = seconds
        self._turn = turn
        self._deadline = time.monotonic() + seconds
        self._is_large = False

    def take(self, chunk: bytes) -> int:
        """Take bytes of the body, decompressed; return how many, which ends the request if it is fewer."""
        if not self.body:
            self._deadline = time.monotonic() + self._seconds
        self.body += chunk
        if len(self.body) > ANSWER_LIMIT:
            return 0
        if len(self.body) > LARGE_ANSWER and not self._is_large:
            began = time.monotonic()
            self._turn.enter_context(_one_large_answer)
            self._deadline += time.monotonic() - began
            self._is_large = True
        return len(chunk)

    def is_late(self, *_: object) -> bool:
        """Return whether its time is over; libcurl asks once a second at least, and ends the request if it is."""
        return time.monotonic() > self._deadline

    def error(self, code: int, request: str) -> NodeUnreachable | NodeUnreadable:
        """Return the node error for an error of libcurl."""
        if code == pycurl.E_WRITE_ERROR and len(self.body) > ANSWER_LIMIT:
            return AnswerTooLarge("the answer is too large")
        if code == pycurl.E_ABORTED_BY_CALLBACK and self.body:
            return NodeUnreadable("the answer does not end")
        if code in {pycurl.E_BAD_CONTENT_ENCODING, pycurl.E_WRITE_ERROR}:
            return NodeUnreadable("the answer cannot be decompressed")
        # Its text may hold the URL, with a password.
        return NodeUnreachable(f"{request}: libcurl's error {code}")
