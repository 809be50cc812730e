"""What both development servers offer besides their contract, below ``/dev``.

=======================  ===================================================================================
``GET /dev/log``         ``?after=N``: ``{"entries": [...], "next": M}``, every entry with ``seq`` > N; bounded
``GET /dev/counters``    numbers since the start
``GET /dev/faults``      the faults in force
``POST /dev/faults``     add one fault; the body is a `Fault` as a JSON object
``DELETE /dev/faults``   remove all faults
=======================  ===================================================================================

Faults apply in the order in which they were added, one to a request, until their ``times`` are used up::

    {"kind": "status", "status": 503, "times": 3}               answer three requests with an empty 503
    {"kind": "delay", "seconds": 0.5}                           delay every request until further notice
    {"kind": "hang", "handled": true, "times": 1}               carry one request out and never answer it
    {"kind": "close", "method": "POST", "times": 1}             cut the connection in mid answer
    {"kind": "status", "method": "POST", "every": 2}            refuse every other message
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from io import RawIOBase
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Spoiler = Callable[["Fault", ASGIApp, Scope, Receive, Send], Awaitable[None]]

_PREFIX = "/dev/"


@dataclass(kw_only=True)
class Fault:
    """A failure to inject, for which requests and how often.

    ``delay``, ``close``, ``garbage`` and ``drop_logs`` always carry the request out; ``status`` and ``hang`` do so only
    if ``handled``: its answer is lost but its effect is there.
    """

    #: ``status``, ``delay``, ``hang``, ``close`` (in mid answer), ``garbage`` (half of the JSON) or ``drop_logs``
    #: (``logs`` of a gorush answer emptied).
    kind: str
    #: Requests left to spoil; None for all.
    times: int | None = None
    #: Which of the matching requests are spoiled: 1 is each, 2 is every second one.
    every: int = 1
    #: Only requests whose path begins with this.
    path: str = "/"
    #: Only this method; empty for any.
    method: str = ""
    #: For ``status``.
    status: int = 500
    #: For ``status``.
    body: str = ""
    #: For ``delay``.
    seconds: float = 0.0
    handled: bool = False
    #: Matching requests so far.
    met: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.kind not in _SPOILERS:
            raise ValueError(f"kind is one of {', '.join(_SPOILERS)}")
        if self.every < 1:
            raise ValueError("every is at least 1")


class EventLog:
    """The last events, numbered from 1, that can be followed without being consumed.

    Args:
        file: gets every event as a line of JSON; a log that is opened again, also after a SIGKILL, goes on from there.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=50_000)
        self.last = 0
        self._file = file and _open_log(file)
        for line in file.read_bytes().splitlines() if file else ():
            self._entries.append(json.loads(line))
            self.last = self._entries[-1]["seq"]

    def append(self, entry: Mapping[str, Any]) -> None:
        """Number an event and keep it; when the log is full, the oldest is dropped."""
        self.last += 1
        numbered_entry = {"seq": self.last, **entry}
        self._entries.append(numbered_entry)
        if self._file:
            self._file.write(json.dumps(numbered_entry).encode() + b"\n")

    def after(self, seq: int) -> list[dict[str, Any]]:
        """Return the kept events with a higher number."""
        first = self.last - len(self._entries) + 1
        return list(islice(self._entries, max(0, seq + 1 - first), None))


def _open_log(file: Path) -> RawIOBase:
    """Open a file of events, unbuffered, so that events outlive the process. An incomplete last line is removed."""
    log = file.open("ab", buffering=0)
    log.truncate(file.read_bytes().rfind(b"\n") + 1)
    return log


class FaultInjection:
    """ASGI middleware that spoils requests by the given faults; ``/dev`` itself is never spoiled."""

    def __init__(self, app: ASGIApp, faults: list[Fault]) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, spoiled if a fault is in force for it."""
        fault = self._take(scope) if self._faults and scope["type"] == "http" else None
        if fault is None:
            await self._app(scope, receive, send)
        else:
            await _SPOILERS[fault.kind](fault, self._app, scope, receive, send)

    def _take(self, scope: Scope) -> Fault | None:
        method, path = scope["method"], scope["path"]
        if path.startswith(_PREFIX):
            return None
        for fault in self._faults:
            if path.startswith(fault.path) and fault.method in ("", method):
                fault.met += 1
                if fault.met % fault.every:
                    continue
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                return fault
        return None


class AnswerHeader:
    """ASGI middleware that gives every answer a header."""

    def __init__(self, app: ASGIApp, name: str, value: str) -> None:
        self._app = app
        self._name = name
        self._value = value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[self._name] = self._value
            await send(message)

        await self._app(scope, receive, send_with_header)


def control_routes(faults: list[Fault], log: EventLog, counters: Callable[[], Mapping[str, int]]) -> list[Route]:
    """Return the routes that this module's table lists."""

    async def read_log(request: Request) -> Response:
        entries = log.after(int(request.query_params.get("after", "0")))
        return JSONResponse({"entries": entries, "next": log.last})

    async def read_counters(_: Request) -> Response:
        return JSONResponse(counters())

    async def change_faults(request: Request) -> Response:
        if request.method == "DELETE":
            faults.clear()
        elif request.method == "POST":
            try:
                faults.append(Fault(**await request.json()))
            except (TypeError, ValueError) as error:
                names = ", ".join(parameter.name for parameter in fields(Fault) if parameter.init)
                return Response(f"{error}; a fault has {names}", status_code=400, media_type="text/plain")
        return JSONResponse([asdict(fault) for fault in faults])

    return [
        Route(f"{_PREFIX}log", read_log),
        Route(f"{_PREFIX}counters", read_counters),
        Route(f"{_PREFIX}faults", change_faults, methods=["GET", "POST", "DELETE"]),
    ]


async def _status(fault: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    if fault.handled:
        await _answer(app, scope, receive)
    await Response(fault.body, status_code=fault.status)(scope, receive, send)


async def _delay(fault: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(fault.seconds)
    await app(scope, receive, send)


async def _hang(fault: Fault, app: ASGIApp, scope: Scope, receive: Receive, _: Send) -> None:
    if fault.handled:
        await _answer(app, scope, receive)
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(_: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    start, body = await _answer(app, scope, receive)
    await send(start)
    # The server closes the connection of an answer that stays shorter than its Content-Length.
    await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})


async def _garbage(_: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    start, body = await _answer(app, scope, receive)
    await _resend(start, body[: len(body) // 2], send)


async def _drop_logs(_: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    start, body = await _answer(app, scope, receive)
    await _resend(start, json.dumps({**json.loads(body), "logs": []}).encode(), send)


_SPOILERS: dict[str, Spoiler] = {
    "status": _status,
    "delay": _delay,
    "hang": _hang,
    "close": _close,
    "garbage": _garbage,
    "drop_logs": _drop_logs,
}


async def _answer(app: ASGIApp, scope: Scope, receive: Receive) -> tuple[Message, bytes]:
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, keep)
    return messages[0], b"".join(message.get("body", b"") for message in messages[1:])


async def _resend(start: Message, body: bytes, send: Send) -> None:
    headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": body})
