"""The receiver of gorush's feedback webhook: a process of its own, with Postgres alone and no key.

gorush calls the webhook in the worker that pushes, one call after another, and waits for each: so a call is answered
after one statement, and quickly also where it fails. aiohttp serves it, so that a slow client holds no thread.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from itertools import product
from typing import Final

import structlog
from aiohttp import web
from psycopg_pool import ConnectionPool

from wakupush.postgres import deliveries
from wakupush.runtime import counters, metrics, probes
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.settings import Settings, SettingsError
from wakupush.server.delivery import feedback
from wakupush.server.delivery.feedback import FeedbackResult
from wakupush.server.faults import is_outage
from wakupush.server.outdated import end_if_outdated

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: As gorush's `core.feedback_header` has to name it.
SECRET_HEADER: Final = "X-Wakupush-Secret"  # noqa: S105 - a name, not a secret
#: Bytes of a body at most: an error text can repeat a device token a few times.
MOST_BYTES: Final = 64 * 1024
#: Seconds within which a body has to come.
BODY_SECONDS: Final = 5.0
#: Seconds that Postgres has; a worker of gorush waits meanwhile.
POSTGRES_SECONDS: Final = 2.0
#: Calls that wait for Postgres at most. A gorush keeps 20 connections open.
MOST_WAITING: Final = 100

_STATUS: Final = {
    FeedbackResult.NOTED: HTTPStatus.OK,
    FeedbackResult.KNOWN: HTTPStatus.OK,
    FeedbackResult.UNKNOWN: HTTPStatus.OK,
    FeedbackResult.MALFORMED: HTTPStatus.BAD_REQUEST,
    FeedbackResult.FORBIDDEN: HTTPStatus.FORBIDDEN,
    FeedbackResult.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    FeedbackResult.TOO_SLOW: HTTPStatus.REQUEST_TIMEOUT,
    FeedbackResult.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


class FeedbackReceiver:
    """The routes of the process.

    Args:
        pool: of Postgres connections.
        secret: what gorush sends to prove that it is gorush.
    """

    def __init__(self, pool: ConnectionPool, secret: str) -> None:
        self._pool = pool
        self._secret = secret.encode()
        self._threads = ThreadPoolExecutor(MOST_WAITING, "feedback")
        self._waiting = 0
        self._probes = probes.Probes(healthy=dict, ready=self._ready)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=MOST_BYTES)
        app.add_routes([web.post("/feedback", self._feedback), *(web.get(path, self._probe) for path in probes.PATHS)])
        return app

    async def _feedback(self, request: web.Request) -> web.Response:
        result = await self._result(request)
        metrics.FEEDBACK.labels(result.value).inc()
        return web.Response(status=_STATUS[result])

    async def _result(self, request: web.Request) -> FeedbackResult:
        sent = request.headers.get(SECRET_HEADER, "").encode(errors="surrogateescape")
        if not hmac.compare_digest(sent, self._secret):
            return FeedbackResult.FORBIDDEN
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return FeedbackResult.TOO_LARGE
        except TimeoutError:
            return FeedbackResult.TOO_SLOW
        except (web.RequestPayloadError, ConnectionError):
            return FeedbackResult.MALFORMED
        if self._waiting >= MOST_WAITING:
            return FeedbackResult.UNAVAILABLE
        return await self._take(body)

    async def _take(self, body: bytes) -> FeedbackResult:
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, feedback.take, self._pool, body)
        except Exception as error:
            if is_outage(error):
                log.warning("feedback_not_stored", error=type(error).__name__)
            else:
                log.exception("feedback_failed")
            return FeedbackResult.UNAVAILABLE
        finally:
            self._waiting -= 1

    async def _probe(self, request: web.Request) -> web.Response:
        answer = await asyncio.to_thread(self._probes.answer, request.path, request.headers.get("Accept", ""))
        return web.Response(status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type})

    def _ready(self) -> probes.Checks:
        try:
            with self._pool.connection() as connection:
                deliveries.check_feedback(connection)
        except Exception as error:
            if not is_outage(error):
                raise
            return {"Postgres": False}
        return {"Postgres": True}


def run(settings: Settings) -> None:
    """Receive until SIGTERM.

    Raises:
        SettingsError: no secret is set, so nobody could tell gorush from others; or an address is none, or not free.
    """
    secret = settings.gorush.feedback_secret
    if secret is None:
        raise SettingsError(
            "WAKUPUSH_GORUSH__FEEDBACK_SECRET is not set: choose one, and give it to gorush as"
            f' core.feedback_header: ["{SECRET_HEADER}: …"]'
        )
    postgres = settings.postgres.model_copy(update={"timeout": POSTGRES_SECONDS, "statement_timeout": POSTGRES_SECONDS})
    counters.begin({metrics.FEEDBACK: product(FeedbackResult)})
    pool, port = open_pool(postgres, end_if_outdated), settings.feedback.http_port
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        pool.close()
        raise SettingsError(
            f"WAKUPUSH_FEEDBACK__HTTP_PORT: port {port} cannot be listened on: {error.strerror}"
        ) from None
    # It would log each request that is no HTTP as an error.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    log.info("started", http_port=listener.getsockname()[1])
    app = FeedbackReceiver(pool, secret.get_secret_value()).app()
    web.run_app(app, sock=listener, print=None, access_log=None, shutdown_timeout=POSTGRES_SECONDS)
    pool.close()
    log.info("stopped")
