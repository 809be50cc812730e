"""`wakupush exporter`: exports queue depths, for Prometheus and for an autoscaler of the pools. It needs no key.

It also says how full Redis and Postgres are: no other exporter has to know their addresses and passwords.
"""

import time
from collections.abc import Callable, Iterable
from threading import RLock

import psycopg
import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from redis import RedisError

from wakupush.model.roles import STATEMENT_SECONDS, Role
from wakupush.model.use import Use
from wakupush.postgres.backlog import count_deliveries, export_backlog, pipeline_runs
from wakupush.postgres.limits import use as use_of_postgres
from wakupush.postgres.maintenance import EVENTS
from wakupush.postgres.old_code import end_if_outdated
from wakupush.redis import backlog, presence
from wakupush.runtime import metrics, probes
from wakupush.runtime.connections.postgres import check_dsn, parameters, set_timeouts
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings, SettingsError
from wakupush.runtime.stopping import stop_on_signals
from wakupush.server.delivery.apps import app_platforms

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Port of its probes, unless a setting says otherwise.
HTTP_PORT = 9103
#: Seconds after which Redis or Postgres count as down: a scrape waits for 10 by default.
PATIENCE = STATEMENT_SECONDS[Role.EXPORTER]


class BacklogCollector(Collector):
    """Reads at each scrape, so that no figure is old; unreadable sources are left out, and the gauge `up` shows it.

    Raises:
        SettingsError: an address is not valid.
    """

    def __init__(self, settings: Settings) -> None:
        self._redis = open_redis(settings.redis.model_copy(update={"timeout": PATIENCE}))
        self._app_platforms = app_platforms(settings)
        self._dsn = check_dsn(settings.postgres)
        self._postgres = settings.postgres.model_copy(update={"timeout": PATIENCE, "statement_timeout": PATIENCE})
        self._sources: dict[str, Callable[[], None]] = {
            "redis": self._look_at_redis,
            "postgres": self._look_at_postgres,
        }
        self._lock = RLock()

    def collect(self) -> Iterable[Metric]:
        """Return all gauges of the exporter as they are now."""
        with self._lock:
            self.check()
            return [metric for gauge in metrics.EXPORTER for metric in gauge.collect()]

    def check(self) -> probes.Checks:
        """Set all gauges, while no scrape does; return for each source whether it answered."""
        with self._lock:
            for gauge in metrics.EXPORTER:
                gauge.clear()
            results = {source: _answers(source, look) for source, look in self._sources.items()}
            for source, is_up in results.items():
                metrics.EXPORTER_UP.labels(source).set(is_up)
            return results

    def _look_at_redis(self) -> None:
        now = time.time()
        for name, queue in backlog.look(self._redis).items():
            metrics.QUEUE_TASKS.labels(name).set(queue.tasks)
            metrics.QUEUE_MESSAGES.labels(name).set(queue.messages)
            metrics.QUEUE_BYTES.labels(name).set(queue.bytes)
            metrics.QUEUE_AGE.labels(name).set(0 if queue.oldest is None else max(0.0, now - queue.oldest))
            metrics.TASKS_IN_FLIGHT.labels(name).set(queue.tasks_in_flight)
            metrics.MESSAGES_IN_FLIGHT.labels(name).set(queue.messages_in_flight)
        _show_use("redis", backlog.use(self._redis))
        offsets: dict[str, float] = {}
        for process in presence.read(self._redis):
            if not process.is_gone:
                offsets[process.role] = max(offsets.get(process.role, 0.0), abs(process.clock_offset))
        for command, offset in offsets.items():
            metrics.CLOCK_OFFSET.labels(command).set(offset)

    def _look_at_postgres(self) -> None:
        with psycopg.connect(
            self._dsn,
            application_name="wakupush exporter",
            autocommit=True,
            **parameters(self._postgres),
        ) as connection:
            set_timeouts(connection, self._postgres)
            end_if_outdated(connection)
            backlogs = count_deliveries(connection, self._app_platforms)
            export = export_backlog(connection)
            runs = pipeline_runs(connection)
            use = use_of_postgres(connection)
        _show_use("postgres", use)
        if export is not None:
            metrics.EXPORT_LAG_SECONDS.labels(EVENTS).set(export.seconds)
            metrics.EXPORT_LAG_ROWS.labels(EVENTS).set(export.rows)
        for run in runs:
            metrics.PIPELINE_RUN_TIME.labels(run.job).set(run.ended_at)
            metrics.PIPELINE_RUN_SECONDS.labels(run.job).set(run.seconds)
        for deliveries in backlogs:
            labels = deliveries.app_platform.labels
            metrics.DELIVERIES_PENDING.labels(*labels).set(deliveries.pending)
            metrics.DELIVERIES_DUE.labels(*labels).set(deliveries.due)
            metrics.DELIVERIES_DUE_AGE.labels(*labels).set(deliveries.due_age)
            metrics.DELIVERIES_POSTING.labels(*labels).set(deliveries.posting)


def _show_use(source: str, use: Use) -> None:
    metrics.DATA_BYTES.labels(source).set(use.bytes)
    metrics.CONNECTIONS.labels(source).set(use.connections)
    # A Redis without a limit takes what its machine has.
    if use.most_bytes:
        metrics.DATA_LIMIT_BYTES.labels(source).set(use.most_bytes)
    if use.most_connections:
        metrics.CONNECTIONS_LIMIT.labels(source).set(use.most_connections)


def _answers(source: str, look: Callable[[], None]) -> bool:
    try:
        look()
    except (RedisError, psycopg.Error) as error:
        log.warning("source_failed", source=source, error=type(error).__name__)
        return False
    return True


def run(settings: Settings) -> None:
    """Serve until SIGTERM.

    Raises:
        SettingsError: an address is not valid, or there is no port.
    """
    collector = BacklogCollector(settings)
    registry = CollectorRegistry()
    registry.register(collector)
    stop = stop_on_signals()
    health = probes.Probes(healthy=dict, ready=collector.check, registry=registry)
    port = probes.serve(settings, HTTP_PORT, health)
    if port is None:
        raise SettingsError("WAKUPUSH_HTTP_PORT: a port is expected, the exporter does nothing else")
    log.info("started", http_port=port)
    stop.wait()
    log.info("stopped")
