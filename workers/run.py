"""Running a pool of workers, or beat, in the foreground."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog
from celery.concurrency.prefork import TaskPool
from celery.utils.nodenames import gethostname
from prometheus_client import CollectorRegistry, multiprocess

from wakupush.model.queues import QUEUES, REST
from wakupush.redis.presence import Presence
from wakupush.runtime import counters, metrics, probes, tracing
from wakupush.runtime.connections.postgres import check_dsn
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.runtime.stopping import stop_on_signals
from wakupush.server.beat import turns
from wakupush.server.beat.beat import open_beat
from wakupush.server.beat.turns import Turns
from wakupush.server.engine.identity import KEYS_DIFFER, NoIdentityError, is_published, load_identity
from wakupush.workers.app import create_app
from wakupush.workers.counters import of_beat, of_publishing, of_worker
from wakupush.workers.pulse import Noting

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: How much the pool `rest` yields to all others on its machine.
REST_NICENESS: Final = 10
#: Where Linux takes the niceness of this session.
AUTOGROUP: Final = Path("/proc/self/autogroup")


class Pool(TaskPool):
    """Processes of a worker, which are replaced when they end, also when that is before the worker is ready.

    Celery's own pool ends the whole worker then: "Could not start worker processes".
    """

    #: Billiard's, once it has started.
    _pool: Any

    def did_start_ok(self) -> bool:
        """Leave what has ended to the event loop, which replaces it."""
        return True

    def register_with_event_loop(self, loop: Any) -> None:
        """Also take processes that end out of the gauges: one that is killed cannot do that itself."""
        super().register_with_event_loop(loop)
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return
        # Celery sets it anew for each connection to the broker.
        on_process_down = self._pool.on_process_down

        def on_down(process: Any) -> None:
            on_process_down(process)
            multiprocess.mark_process_dead(process.pid)  # type: ignore[no-untyped-call]  # prometheus_client has no types there

        self._pool.on_process_down = on_down


def _lower_priority() -> None:
    """Yield to all others on this machine.

    Linux with autogroups (sched(7)) shares the cores among sessions first, and `nice` counts only within one. So a
    session that is this process' own is made nice too.
    """
    os.nice(REST_NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            AUTOGROUP.write_text(str(REST_NICENESS))


def worker(settings: Settings, pool: str, concurrency: int) -> None:
    """Run a pool until SIGTERM; then finish the tasks in flight. The pool `rest` has a low priority.

    Args:
        settings: with a private key.
        pool: one of `POOLS`, which has the name of its queue.
        concurrency: processes.

    Raises:
        NoIdentityError: there is no private key, or it is not that of the public keys which ingest has.
        SettingsError: an address is not valid.
    """
    if not is_published(load_identity(settings), settings):
        raise NoIdentityError(KEYS_DIFFER)
    check_dsn(settings.postgres)
    tracing.check(settings.tracing)
    open_redis(settings.redis).close()
    if pool == REST:
        _lower_priority()
    queues = QUEUES.values() if pool == REST else [QUEUES[pool]]
    counters.begin(*(of_worker(queue, settings) for queue in queues), of_publishing(settings))
    metrics.PROCESSES.labels(pool).set(concurrency)
    # `wakupush worker` makes the folder of the processes' metrics only if there is a port.
    if settings.port_or(-1) >= 0:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client has no types there
        health = probes.Probes(healthy=Noting.pulse.healthy, ready=Noting.pulse.ready, registry=registry)
        log.info("metrics_served", http_port=probes.serve(settings, -1, health))
    # Not `worker_main`: Celery's command line costs each start 0.2 s of imports.
    running = create_app(settings, process=f"worker {pool}").Worker(
        hostname=f"{pool}-{os.getpid()}@{gethostname()}",
        queues=[pool],
        pool_cls=Pool,
        concurrency=concurrency,
        without_gossip=True,
        without_mingle=True,
        task_events=True,
    )
    with Presence(open_redis(settings.redis), f"worker {pool}", Noting.pulse.ready):
        running.start()
    sys.exit(running.exitcode)


def beat(settings: Settings) -> None:
    """Run beat until SIGTERM; several at once do no harm.

    Raises:
        SettingsError: an address is not valid.
    """
    resources = open_beat(settings)
    stop = stop_on_signals()
    running = Turns()
    counters.begin(of_beat(), of_publishing(settings))
    port = probes.serve(settings, -1, probes.Probes(healthy=running.healthy, ready=running.ready))
    log.info("started", http_port=port)
    with Presence(open_redis(settings.redis), "beat", running.ready):
        turns.run(resources, stop, running)
    resources.close()
    log.info("stopped")
