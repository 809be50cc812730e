"""/healthz, /readyz and /metrics of a process: what they answer, and a small server for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

from wakupush.runtime.settings import SettingsError

#: Names of what is checked, and whether it is well.
Checks = dict[str, bool]
PATHS: Final = ("/healthz", "/readyz", "/metrics")


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What a path answers."""

    status: HTTPStatus
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What the paths show.

    Args:
        healthy: whether the process works; a process that does not is to be restarted.
        ready: whether it does its job.
        registry: what /metrics shows.
    """

    healthy: Callable[[], Checks]
    ready: Callable[[], Checks]
    registry: CollectorRegistry = REGISTRY

    def answer(self, path: str, accept: str = "") -> ProbeAnswer:
        """Return what a path answers; it may block.

        /healthz and /readyz answer 200 if all is well and 503 if not, both with what was checked, as JSON.

        Args:
            path: of the request.
            accept: its header Accept, which chooses the format of /metrics.
        """
        match path:
            case "/healthz":
                return _checked(self.healthy())
            case "/readyz":
                return _checked(self.ready())
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return ProbeAnswer(HTTPStatus.OK, content_type, encode(self.registry))
            case _:
                return ProbeAnswer(HTTPStatus.NOT_FOUND, "text/plain", f"{', '.join(PATHS)}\n".encode())


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: probes come every few seconds."""


def serve(port: int, probes: Probes) -> int:
    """Serve in a thread that ends with the process, and return the port.

    Args:
        port: 0 picks a free one.
        probes: what is served.

    Raises:
        SettingsError: the port cannot be listened on.
    """

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        answer = probes.answer(environ["PATH_INFO"], environ.get("HTTP_ACCEPT", ""))
        start_response(f"{answer.status.value} {answer.status.phrase}", [("Content-Type", answer.content_type)])
        return [answer.body]

    try:
        server = make_server("", port, app, server_class=_Server, handler_class=_Silent)
    except OSError as error:
        raise SettingsError(f"WAKUPUSH_HTTP_PORT: port {port} cannot be listened on: {error.strerror}") from None
    Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server.server_port


def _checked(results: Checks) -> ProbeAnswer:
    status = HTTPStatus.OK if all(results.values()) else HTTPStatus.SERVICE_UNAVAILABLE
    return ProbeAnswer(status, "application/json", json.dumps(results).encode() + b"\n")
