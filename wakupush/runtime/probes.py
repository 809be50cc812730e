"""/healthz, /readyz and /metrics of a process."""

from __future__ import annotations

import json
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import REGISTRY, make_wsgi_app

from wakupush.runtime.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client import CollectorRegistry

#: Names of what is checked, and whether it is well.
Checks = dict[str, bool]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: probes come every few seconds."""


def serve(
    port: int,
    *,
    setting: str,
    healthy: Callable[[], Checks],
    ready: Callable[[], Checks],
    registry: CollectorRegistry = REGISTRY,
) -> int:
    """Serve in a thread that ends with the process, and return the port.

    /healthz and /readyz answer 200 if all is well and 503 if not, both with what was checked.

    Args:
        port: 0 picks a free one.
        setting: the variable that it comes from.
        healthy: whether the process works; a process that does not is to be restarted.
        ready: whether it does its job.
        registry: what /metrics shows.

    Raises:
        SettingsError: the port cannot be listened on.
    """
    metrics: WSGIApplication = make_wsgi_app(registry)
    checks = {"/healthz": healthy, "/readyz": ready}

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in checks:
            start_response(_status(HTTPStatus.NOT_FOUND), [("Content-Type", "text/plain")])
            return [b"/healthz, /readyz, /metrics\n"]
        status, body = answer(checks[path]())
        start_response(_status(status), [("Content-Type", "application/json")])
        return [body]

    try:
        server = make_server("", port, app, server_class=_Server, handler_class=_Silent)
    except OSError as error:
        raise SettingsError(f"{setting} cannot be listened on: {error.strerror}") from None
    Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server.server_port


def answer(results: Checks) -> tuple[HTTPStatus, bytes]:
    """Return the status and the JSON body that tell what was checked."""
    status = HTTPStatus.OK if all(results.values()) else HTTPStatus.SERVICE_UNAVAILABLE
    return status, json.dumps(results).encode() + b"\n"


def _status(status: HTTPStatus) -> str:
    return f"{status.value} {status.phrase}"
