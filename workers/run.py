"""Running a pool of workers, or the schedule, in the foreground."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, multiprocess

from wakupush import http, metrics, tracing
from wakupush.connections import open_redis
from wakupush.server import schedule
from wakupush.server.context import Resources
from wakupush.server.identity import NoIdentityError, is_published, load_identity
from wakupush.server.schedule import Turns
from wakupush.state.pool import check_dsn
from wakupush.stopping import stop_on_signals
from workers.app import create_app
from workers.pulse import Noting

if TYPE_CHECKING:
    from wakupush.queues import Queue
    from wakupush.settings import Settings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def worker(settings: Settings, queue: Queue, concurrency: int) -> None:
    """Run the pool of a queue until SIGTERM: then what was begun is finished.

    Args:
        settings: with a private key.
        queue: which pool.
        concurrency: processes.

    Raises:
        NoIdentityError: there is no private key, or it is not that of the public key which ingest has.
        SettingsError: an address is none.
    """
    if not is_published(load_identity(settings), settings):
        raise NoIdentityError("WAKUPUSH_PUBLIC_KEY is not that of the private key: ingest listens elsewhere")
    check_dsn(settings.postgres)
    tracing.check(settings.tracing)
    open_redis(settings.redis).close()
    if settings.worker.http_port >= 0:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client has no types there
        port = http.serve(
            settings.worker.http_port,
            setting="WAKUPUSH_WORKER__HTTP_PORT",
            healthy=Noting.pulse.healthy,
            ready=Noting.pulse.ready,
            registry=registry,
        )
        log.info("metrics_served", http_port=port)
    metrics.PROCESSES.labels(queue.name).set(concurrency)
    create_app(settings, process=f"worker {queue.name}").worker_main(
        [
            "worker",
            f"--queues={queue.name}",
            f"--hostname={queue.name}-{os.getpid()}@%h",
            "--pool=prefork",
            f"--concurrency={concurrency}",
            "--without-gossip",
            "--without-mingle",
            "--task-events",
        ]
    )


def beat(settings: Settings) -> None:
    """Run the schedule until SIGTERM; several at once do no harm.

    Raises:
        SettingsError: an address is none.
    """
    resources = Resources.open(settings)
    stop = stop_on_signals()
    turns = Turns()
    if settings.worker.http_port >= 0:
        port = http.serve(
            settings.worker.http_port,
            setting="WAKUPUSH_WORKER__HTTP_PORT",
            healthy=turns.healthy,
            ready=turns.ready,
        )
        log.info("metrics_served", http_port=port)
    log.info("started")
    schedule.run(resources, stop, turns)
    resources.close()
    log.info("stopped")
