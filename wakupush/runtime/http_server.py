"""The HTTP server of the processes, for probes and gorush's webhook: a thread for each connection, bounded.

The standard library's, because workers have loaded that already: another would cost each of them memory and a loop. A
connection carries one request, so that none is idle: a slow sender holds a thread for at most `REQUEST_SECONDS`.
"""

import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BufferedReader, RawIOBase
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import Any, Final

import structlog

from wakupush.runtime.settings import SettingsError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Connections at the same time at most, each with its thread. Those beyond wait to be accepted.
MOST_CONNECTIONS: Final = 256
#: Seconds for a client to send its request with the body, and again to take the answer.
REQUEST_SECONDS: Final = 5.0
#: Bytes of a body that are read and dropped, so that a caller that still sends gets the answer to a refused request.
_MOST_DROPPED: Final = 1024 * 1024
_LENGTH: Final = re.compile(r"[0-9]{1,9}")


class TooLargeError(ValueError):
    """The body has more bytes than are wanted."""


class MalformedError(ValueError):
    """The body has no length, or ends before it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose body was not read yet."""

    #: As it was sent: ``GET``.
    method: str
    #: Without a query.
    path: str
    headers: Message
    #: Returns the body, of at most so many bytes; raises `TooLargeError`, `MalformedError`, `TimeoutError` if it does
    #: not come in time, and `ConnectionError`.
    read: Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer."""

    status: HTTPStatus
    content_type: str = "text/plain"
    body: bytes = b""


class HttpServer(ThreadingMixIn, TCPServer):
    """Answers requests in threads; `start` and `stop` it.

    Args:
        port: 0 picks a free one.
        setting: the name of the port's setting, for the error.
        app: answers a request, in the thread of its connection; it may block.
        host: the IPv4 address to listen on; empty for all.

    Raises:
        SettingsError: the port cannot be listened on, or not at this address.
    """

    allow_reuse_address = True
    request_queue_size = 128
    #: So a process ends without those that probe it; `stop` waits for open requests if this is False.
    daemon_threads = True

    def __init__(self, port: int, setting: str, app: Callable[[Request], Answer], host: str = "") -> None:
        self.app = app
        self._free = BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            address = " at the address of WAKUPUSH_HTTP_HOST" if host else ""
            raise SettingsError(f"{setting}: port {port} cannot be listened on{address}: {error.strerror}") from None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve in a thread that ends with the process."""
        Thread(target=self.serve_forever, name="http", daemon=True).start()

    def stop(self) -> None:
        """Accept no more connections."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a connection's thread as soon as one may run."""
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show an error, unless it is one of the connection, which is the caller's affair."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Incoming(RawIOBase):
    """Bytes of a connection until its time is over; then reading raises `TimeoutError`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ends = time.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        seconds_left = self._ends - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError
        self._connection.settimeout(seconds_left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """Hands one request to the app; HTTP/1.0 is this class's default, which ends a connection with its answer."""

    server: HttpServer
    wbufsize = -1  # status, headers and body leave together

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = BufferedReader(_Incoming(self.connection))
        self._unread = 0

    def do_GET(self) -> None:
        length = self.headers.get("Content-Length", "")
        is_sized = _LENGTH.fullmatch(length) is not None
        self._unread = int(length) if is_sized else 0

        def read(most: int) -> bytes:
            if not is_sized:
                raise MalformedError("there is no length")
            if self._unread > most:
                raise TooLargeError(f"the body has more than {most} bytes")
            length, self._unread = self._unread, 0
            body = self.rfile.read(length)
            if len(body) < length:
                raise MalformedError("the body is cut off")
            return body

        try:
            answer = self.server.app(Request(self.command, self.path.partition("?")[0], self.headers, read))
        except Exception:
            log.exception("answer_failed")
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR)
        self.connection.settimeout(REQUEST_SECONDS)
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()
        # To close a connection with bytes that were not read would reset it, and the answer could be lost.
        self.rfile.read(min(self._unread, _MOST_DROPPED))

    do_POST = do_GET  # noqa: N815 - the names that the base class looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: probes come every few seconds, and anybody may send bytes that are not HTTP."""
