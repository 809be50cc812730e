"""Running a pool of workers, or the schedule, in the foreground."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, multiprocess

from wakupush import http
from wakupush.server.identity import load_identity
from workers.app import create_app

if TYPE_CHECKING:
    from wakupush.queues import Queue
    from wakupush.settings import Settings


def worker(settings: Settings, queue: Queue, concurrency: int) -> None:
    """Run the pool of a queue until SIGTERM: then what was begun is finished.

    Args:
        settings: with a private key.
        queue: which pool.
        concurrency: processes.

    Raises:
        NoIdentityError: there is no private key.
    """
    load_identity(settings)
    if settings.worker.http_port >= 0:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client has no types there
        http.serve(settings.worker.http_port, healthy=dict, ready=dict, registry=registry)
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
    """Run the schedule until SIGTERM. It keeps nothing on disk."""
    create_app(settings, process="beat").Beat(scheduler="celery.beat:Scheduler", max_interval=1).run()
