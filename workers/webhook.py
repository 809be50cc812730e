"""The receiver of gorush's feedback webhook: a process of its own, with Postgres alone and no key.

gorush calls the webhook in the worker that pushes, one call after another, and waits for each: so a call is answered
after two statements at most, and quickly also where it fails.
"""

import hmac
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import product
from typing import Final

import structlog
from psycopg_pool import ConnectionPool

from wakupush.model.roles import STATEMENT_SECONDS, Role
from wakupush.postgres import deliveries
from wakupush.postgres.old_code import end_if_outdated
from wakupush.runtime import counters, metrics, probes
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.http_server import Answer, HttpServer, MalformedError, Request, TooLargeError
from wakupush.runtime.settings import Settings, SettingsError
from wakupush.runtime.stopping import stop_on_signals
from wakupush.server.delivery import webhook
from wakupush.server.delivery.webhook import FeedbackResult
from wakupush.server.errors import is_outage

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: As gorush's `core.feedback_header` has to name it.
SECRET_HEADER: Final = "X-Wakupush-Secret"  # noqa: S105 - a name, not a secret
#: Bytes of a body at most: an error text can repeat a device token a few times.
MOST_BYTES: Final = 64 * 1024
#: Time-out of Postgres in seconds; a worker of gorush waits for it.
POSTGRES_SECONDS: Final = STATEMENT_SECONDS[Role.FEEDBACK]

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
    """The app of the process.

    Args:
        pool: of Postgres connections.
        secrets: the header's values that prove a call to be gorush's, and the apps whose gorush each is known to;
            None for all.
    """

    def __init__(self, pool: ConnectionPool, secrets: Mapping[str, Sequence[str] | None]) -> None:
        self._pool = pool
        self._secrets = {secret.encode(): apps for secret, apps in secrets.items()}
        self._probes = probes.Probes(healthy=dict, ready=self._ready)

    def answer(self, request: Request) -> Answer:
        """Return the answer to a call of the webhook, or to a probe."""
        if request.path != "/feedback":
            return self._probes.answer(request)
        if request.method != "POST":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED)
        result = self._result(request)
        metrics.FEEDBACK.labels(result.value).inc()
        return Answer(_STATUS[result])

    def _result(self, request: Request) -> FeedbackResult:
        secret = request.headers.get(SECRET_HEADER, "").encode(errors="surrogateescape")
        matches = [apps for own, apps in self._secrets.items() if hmac.compare_digest(secret, own)]
        if not matches:
            return FeedbackResult.FORBIDDEN
        try:
            body = request.read(MOST_BYTES)
        except TooLargeError:
            return FeedbackResult.TOO_LARGE
        except TimeoutError:
            return FeedbackResult.TOO_SLOW
        except (MalformedError, ConnectionError):
            return FeedbackResult.MALFORMED
        try:
            return webhook.take(self._pool, body, matches[0])
        except Exception as error:
            if is_outage(error):
                log.warning("feedback_not_stored", error=type(error).__name__)
            else:
                log.exception("feedback_failed")
            return FeedbackResult.UNAVAILABLE

    def _ready(self) -> probes.Checks:
        try:
            with self._pool.connection() as connection:
                deliveries.check_feedback(connection)
        except Exception as error:
            if not is_outage(error):
                raise
            return {"Postgres": False}
        return {"Postgres": True}


def _secrets(settings: Settings) -> dict[str, list[str] | None]:
    """Return the secrets, and the apps whose gorush knows each; None for all."""
    secrets: dict[str, list[str] | None] = {}
    for app in settings.app_names:
        if (secret := settings.gorush_of(app).feedback_secret) is not None:
            apps = secrets.setdefault(secret.get_secret_value(), [] if app else None)
            if apps is not None:
                apps.append(app)
    return secrets


def run(settings: Settings) -> None:
    """Receive until SIGTERM.

    Raises:
        SettingsError: no secret is set, so nobody could tell gorush from others; or an address is none, or not free.
    """
    secrets = _secrets(settings)
    if not secrets:
        raise SettingsError(
            "WAKUPUSH_GORUSH__FEEDBACK_SECRET is not set: choose one, and give it to gorush as"
            f' core.feedback_header: ["{SECRET_HEADER}: …"]'
        )
    postgres = settings.postgres.model_copy(update={"timeout": POSTGRES_SECONDS, "statement_timeout": POSTGRES_SECONDS})
    counters.begin({metrics.FEEDBACK: product(FeedbackResult)})
    stop = stop_on_signals()
    port, setting = settings.feedback.http_port, "WAKUPUSH_FEEDBACK__HTTP_PORT"
    with open_pool(postgres, end_if_outdated) as pool:
        server = HttpServer(port, setting, FeedbackReceiver(pool, secrets).answer, settings.http_host)
        server.daemon_threads = False
        server.start()
        log.info("started", http_port=server.port)
        stop.wait()
        server.stop()
    log.info("stopped")
