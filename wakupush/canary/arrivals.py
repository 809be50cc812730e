"""The gorush of the canary's devices: it takes their pushes, as gorush does, and tells who waits for them."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from wakupush.runtime.http_server import Answer, MalformedError, Request, TooLargeError

#: Bytes of a post at most: a hundred notifications of a size that Apple takes.
MOST_BYTES: Final = 1024 * 1024
#: Why others get no push, in Apple's word. Anybody can register with the topic of our devices; a device that was pushed
#: to counts as proven, so these must not be.
_REFUSAL: Final = "Unregistered"


class Arrivals:
    """Answers posts of workers, in other threads than the event loop in which somebody waits for the pushes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pushes: dict[str, asyncio.Event] = {}

    @contextmanager
    def accepting(self, device_token: str) -> Iterator[asyncio.Event]:
        """Accept pushes to a device inside the block; each sets the event."""
        event = self._pushes[device_token] = asyncio.Event()
        try:
            yield event
        finally:
            del self._pushes[device_token]

    def answer(self, request: Request) -> Answer:
        """Answer a post as gorush does: docs/reference/contracts/gorush.md, section 2."""
        if request.method != "POST":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            notifications = json.loads(request.read(MOST_BYTES))["notifications"]
            answers = [_answer(one, one["tokens"][0] in self._pushes) for one in notifications]
            tokens = [one["tokens"][0] for one in notifications]
        except TooLargeError:
            return Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        except (MalformedError, ConnectionError, TimeoutError, ValueError, TypeError, LookupError, RecursionError):
            return Answer(HTTPStatus.BAD_REQUEST)
        for token in self._pushes.keys() & set(tokens):
            self._loop.call_soon_threadsafe(self._note, token)
        # gorush also counts a topic.
        counts = sum(1 + bool(one.get("topic")) for one in notifications)
        body: Mapping[str, Any] = {"success": "ok", "counts": counts, "logs": [one for one in answers if one]}
        return Answer(HTTPStatus.OK, "application/json", json.dumps(body).encode())

    def _note(self, device_token: str) -> None:
        if device_token in self._pushes:
            self._pushes[device_token].set()


def _answer(notification: Mapping[str, Any], is_ours: bool) -> dict[str, str] | None:
    """Return gorush's log of a notification that fails; None if it is pushed."""
    if is_ours:
        return None
    return {"type": "failed-push", "platform": "ios", "error": _REFUSAL, "notif_id": str(notification["notif_id"])}
