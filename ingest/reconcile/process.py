"""The process: which thread walks which Store for what."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Self

import structlog
from psycopg_pool import ConnectionPool

from wakupush.ingest.counters import of_enqueueing, of_reconcile
from wakupush.ingest.enqueue import Enqueuer
from wakupush.ingest.reconcile.audit import Audit
from wakupush.ingest.reconcile.peers import Pace, PeerStore
from wakupush.ingest.reconcile.recent import Recent
from wakupush.ingest.reconcile.rest import Rest
from wakupush.ingest.reconcile.thorough import Thorough
from wakupush.ingest.reconcile.walk import PEER_SLICE_SECONDS, Walker, WalkKind
from wakupush.ingest.routing import Routes
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.postgres.old_code import end_if_outdated
from wakupush.redis.celery_app import celery_app
from wakupush.redis.presence import Presence
from wakupush.runtime import counters, probes, tracing
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import ReconcileSettings, Settings
from wakupush.runtime.stopping import stop_on_signals
from wakupush.waku.store import Store

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Port of its probes, unless a setting says otherwise.
HTTP_PORT = 9101
#: Seconds, beyond the pause, without a page or a turn of its loop after which a walker counts as stuck.
STUCK_SECONDS = 120.0
#: Seconds, beyond the pause, without a finished look after which a Store is not ready.
UNWALKED_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """All walkers of a process, and their shared connections."""

    recent: list[Recent]
    #: For the server's own topics only: for queries, walks go back only as long as a client waits. Store peers have no
    #: other walks.
    thorough: list[Thorough]
    audit: Audit
    enqueuer: Enqueuer
    pool: ConnectionPool
    settings: ReconcileSettings

    @classmethod
    def open(cls, settings: Settings, stop: Event) -> Self:
        """Open everything. Postgres, Redis and the nodes may still be down.

        Raises:
            SettingsError: there is no public key, or an address is not valid.
        """
        options, shards = settings.reconcile, settings.waku.shards
        routes = Routes.load(settings)
        stores = settings.stores
        redis = open_redis(settings.redis)
        pool = open_pool(settings.postgres, end_if_outdated)
        enqueuer = Enqueuer(celery_app(settings), redis, routes, settings.ingest)
        rest = Rest(redis)
        queries = WalkKind(queue=QUERY, window=options.query_window)
        # Each key of a rotated identity has topics of its own.
        own = [
            WalkKind(
                queue=queue,
                content_topics=tuple(name for name, its_queue in routes.queues.items() if its_queue is queue),
                window=options.window,
            )
            for queue in (REGISTRATION, DISPATCH)
        ]

        open_store = partial(Store, timeout=settings.waku.timeout, max_read_bytes=settings.waku.max_read_bytes)
        walker = partial(Walker, enqueuer=enqueuer, pool=pool, rest=rest, stop=stop)

        def walkers(kinds: list[WalkKind]) -> list[Walker]:
            return [
                walker(name=name, store=open_store(url), kind=kind) for name, url in stores.items() for kind in kinds
            ]

        def peer_walkers() -> Iterator[Walker]:
            for name, peer in options.peers.items():
                pace = Pace(options.store_peer_pause, stop)
                for kind in own:
                    ways = [open_store(url, peer=peer, pace=pace.wait) for url in settings.waku.url]
                    yield walker(name=name, store=PeerStore(ways), kind=kind, slice_seconds=PEER_SLICE_SECONDS)

        return cls(
            recent=[Recent(walker=each, shards=shards, settings=options) for each in walkers([queries, *own])],
            thorough=[
                *(Thorough(walker=each, shards=shards, settings=options) for each in walkers(own)),
                *(
                    Thorough(walker=each, shards=shards, settings=options, is_store_peer=True)
                    for each in peer_walkers()
                ),
            ],
            audit=Audit(
                stores={name: open_store(url) for name, url in stores.items()},
                shards=shards,
                content_topics=tuple(routes.queues),
                window=options.window,
                stop=stop,
            ),
            enqueuer=enqueuer,
            pool=pool,
            settings=options,
        )

    @property
    def _walks(self) -> list[tuple[str, Recent | Thorough]]:
        """All walks, with the names of their threads and checks."""
        return [
            *((f"{walk.walker.name} {walk.walker.kind.name}", walk) for walk in self.recent),
            *((f"{walk.walker.name} {walk.walker.kind.name}, whole window", walk) for walk in self.thorough),
        ]

    def threads(self) -> list[Thread]:
        """Return a thread for each walker, and one for the audit."""
        walking = [Thread(target=walk.run, name=name) for name, walk in self._walks]
        return [*walking, Thread(target=self.audit.run, name="audit")]

    def close(self) -> None:
        """Close all connections."""
        for store in (*(walk.walker.store for _, walk in self._walks), *self.audit.stores.values()):
            store.close()
        self.enqueuer.app.close()
        self.enqueuer.redis.close()
        self.pool.close()

    def healthy(self) -> probes.Checks:
        """Return for each walker whether its loop turns."""
        least = time.monotonic() - self.settings.pause - STUCK_SECONDS
        return {name: walk.walker.turned_at > least for name, walk in self._walks}

    def ready(self) -> probes.Checks:
        """Return for each Store whether a walk over its recent messages finished a short time ago."""
        now = time.monotonic()
        finished_at: dict[str, float] = {}
        for walk in self.recent:
            finished_at[walk.walker.name] = min(walk.finished_at, finished_at.get(walk.walker.name, math.inf))
        return {name: now - at < self.settings.pause + UNWALKED_SECONDS for name, at in finished_at.items()}


def run(settings: Settings) -> None:
    """Walk again and again until SIGTERM or SIGINT; the current pages are finished.

    Raises:
        SettingsError: there is no public key, or an address is not valid.
    """
    stop = stop_on_signals()
    reconciliation = Reconciliation.open(settings, stop)
    counters.begin(of_enqueueing(), of_reconcile(settings))
    tracing.start(settings.tracing, "ingest reconcile")
    health = probes.Probes(healthy=reconciliation.healthy, ready=reconciliation.ready)
    port = probes.serve(settings, HTTP_PORT, health)
    threads = reconciliation.threads()
    for thread in threads:
        thread.start()
    peers = sorted(settings.reconcile.peers)
    log.info("started", stores=sorted(reconciliation.audit.stores), store_peers=peers, http_port=port)
    with Presence(open_redis(settings.redis), "ingest reconcile", reconciliation.ready):
        for thread in threads:
            thread.join()
    tracing.stop()
    reconciliation.close()
    log.info("stopped")
