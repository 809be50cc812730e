"""The answers of a process on /healthz, /readyz and /metrics."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

from wakupush.runtime.http_server import Answer, HttpServer, Request
from wakupush.runtime.settings import Settings

#: Names of the checks, and whether each holds.
Checks = dict[str, bool]
PATHS: Final = ("/healthz", "/readyz", "/metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The sources of the answers.

    Args:
        healthy: whether the process works; a process that does not is to be restarted.
        ready: whether it does its job.
        registry: what /metrics shows.
    """

    healthy: Callable[[], Checks]
    ready: Callable[[], Checks]
    registry: CollectorRegistry = REGISTRY

    def answer(self, request: Request) -> Answer:
        """Return the answer on a path; it may block.

        /healthz and /readyz answer 200 if all is well and 503 if not, both with the checks as JSON. The header
        Accept chooses the format of /metrics.
        """
        match request.path:
            case "/healthz":
                return _answer(self.healthy())
            case "/readyz":
                return _answer(self.ready())
            case "/metrics":
                encode, content_type = choose_encoder(request.headers.get("Accept", ""))
                return Answer(HTTPStatus.OK, content_type, encode(self.registry))
            case _:
                return Answer(HTTPStatus.NOT_FOUND, body=f"{', '.join(PATHS)}\n".encode())


def serve(settings: Settings, default_port: int, probes: Probes) -> int | None:
    """Serve in a thread that ends with the process, and return the port; None if the process is to have none.

    Args:
        settings: the port and the address to listen on.
        default_port: of the process; -1 for none.
        probes: answers the requests.

    Raises:
        SettingsError: the port cannot be listened on.
    """
    port = settings.port_or(default_port)
    if port < 0:
        return None
    server = HttpServer(port, "WAKUPUSH_HTTP_PORT", probes.answer, settings.http_host)
    server.start()
    return server.port


def _answer(results: Checks) -> Answer:
    status = HTTPStatus.OK if all(results.values()) else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps(results).encode() + b"\n")
