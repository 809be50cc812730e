"""The gorush of the canary's devices: it takes pushes, as gorush does, and tells who waits for them."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from wakupush.runtime.http_server import Answer, MalformedError, Request, TooLargeError

#: Bytes of a post at most: a hundred notifications of a size that Apple takes.
MOST_BYTES: Final = 1024 * 1024


class Arrivals:
    """Answers posts of workers, in other threads than the event loop in which somebody waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: dict[str, asyncio.Event] = {}

    @contextmanager
    def awaited(self, device_token: str) -> Iterator[asyncio.Event]:
        """Return an event that the next push to a device sets."""
        event = self._awaited[device_token] = asyncio.Event()
        try:
            yield event
        finally:
            del self._awaited[device_token]

    def answer(self, request: Request) -> Answer:
        """Answer a post as gorush does whose platforms take everything."""
        if request.method != "POST":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            notifications = json.loads(request.read(MOST_BYTES))["notifications"]
            tokens = [str(token) for one in notifications for token in one["tokens"]]
        except TooLargeError:
            return Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        except (MalformedError, ConnectionError, TimeoutError, ValueError, TypeError, LookupError):
            return Answer(HTTPStatus.BAD_REQUEST)
        for token in tokens:
            self._loop.call_soon_threadsafe(self._arrived, token)
        # gorush also counts a topic: docs/reference/contracts/gorush.md, section 2.
        counts = len(tokens) + sum("topic" in one for one in notifications)
        body: Mapping[str, Any] = {"success": "ok", "counts": counts, "logs": []}
        return Answer(HTTPStatus.OK, "application/json", json.dumps(body).encode())

    def _arrived(self, device_token: str) -> None:
        if device_token in self._awaited:
            self._awaited[device_token].set()
