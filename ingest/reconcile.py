"""`wakupush ingest reconcile`: what the Stores have and the ledger has not is enqueued.

One mechanism heals whatever loses messages: downtime of ingest, a cache of the node that ran over, a wiped Redis, a
killed worker. Several of these processes do each other no harm: they claim messages as ingest live does.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from ingest.enqueue import Enqueuer
from ingest.routing import Routes
from wakupush.model.entries import Entry
from wakupush.model.queues import QUERY
from wakupush.model.walks import Track
from wakupush.postgres import reconciliation
from wakupush.redis import backlog, watched
from wakupush.redis.celery_app import celery_app
from wakupush.runtime import metrics, probes, tracing
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.logging import is_told
from wakupush.runtime.stopping import stop_on_signals
from wakupush.server.faults import is_outage
from wakupush.waku.errors import NodeError
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg_pool import ConnectionPool
    from redis import Redis

    from wakupush.model.queues import Queue
    from wakupush.model.waku_message import WakuMessage
    from wakupush.runtime.settings import ReconcileSettings, Settings
    from wakupush.waku.store_codec import Page

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds, beyond the pause, without a turn of its loop after which a walker counts as stuck.
STUCK_SECONDS = 120.0
#: Seconds, beyond the pause, without a finished walk after which a Store is not ready.
UNWALKED_SECONDS = 300.0
#: Seconds between looks at the backlog.
LOOK_SECONDS = 0.5

_NANOSECONDS = 10**9


class Interrupted(Exception):
    """The root: a walk ended before its last page, so its watermark stays where it is."""


class Stopped(Interrupted):
    """The process is to end."""


class NotEnqueued(Interrupted):
    """Redis failed, or a queue is full: what is missing is still missing."""


class NotWatching(Interrupted):
    """The set of watched topics is not complete, so that queries cannot be told from foreign messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of walk."""

    #: In watermarks, metrics and logs.
    name: str
    #: None means the whole shard, of which the watched topics are taken.
    content_topics: tuple[str, ...] = ()
    #: Where what it finds belongs; anything else is left to the other kind.
    queues: frozenset[Queue]
    #: Seconds back to which it looks.
    window: float


@dataclass(slots=True)
class Tally:
    """What a walk has found so far."""

    #: Where it began, in seconds since the epoch.
    since: float
    examined: int = 0
    malformed: int = 0
    #: For us, and not in the ledger.
    missing: int = 0
    enqueued: int = 0
    #: Least timestamp of these, in nanoseconds since the epoch.
    oldest_missing: int | None = None


@dataclass(slots=True)
class Rest:
    """Whether walks rest: while the queues are behind, claims lapse, and what still waits would be enqueued again."""

    redis: Redis
    #: Seconds.
    most_age: float
    _lock: Lock = field(default_factory=Lock)
    _looked: float = -math.inf
    _since: float | None = None

    def is_due(self) -> bool:
        """Say whether the oldest queued message has waited too long: as of the last look, while somebody looks.

        Raises:
            RedisError: nobody knows.
        """
        with self._lock:
            looks = time.monotonic() - self._looked >= LOOK_SECONDS
            if looks:
                self._looked = time.monotonic()
        if looks:  # without the lock: behind a Redis that hangs walks would wait for each other
            oldest = backlog.oldest(self.redis)
            with self._lock:
                self._note(is_late=oldest is not None and time.time() - oldest > self.most_age)
        return self._since is not None

    def _note(self, *, is_late: bool) -> None:
        if is_late and self._since is None:
            self._since = time.time()
            metrics.RECONCILE_RESTS.inc()
            log.warning("resting", most_age=self.most_age)
        elif not is_late and self._since is not None:
            log.warning("rested", seconds=round(time.time() - self._since, 1))
            self._since = None
        metrics.RECONCILE_RESTING.set(is_late)


@dataclass(slots=True, kw_only=True)
class Walker:
    """Walks one Store in one way, shard after shard."""

    #: Of the node.
    name: str
    store: Store
    kind: Kind
    shards: tuple[str, ...]
    enqueuer: Enqueuer
    pool: ConnectionPool
    settings: ReconcileSettings
    rest: Rest
    stop: Event
    #: Called after each page.
    report: Callable[[Tally], None] = lambda _: None
    #: Monotonic seconds of the last page or turn of the loop, and of the last turn whose walks were all finished.
    turned: float = field(default_factory=time.monotonic)
    finished: float = -math.inf
    _failures: int = 0
    #: By shard: monotonic seconds from when on the whole window is due again.
    _full_due: dict[str, float] = field(default_factory=dict)
    #: By shard: least timestamp (ns) that the last walk found missing; the next one begins there at the latest.
    _unsettled: dict[str, int | None] = field(default_factory=dict)

    def run(self) -> None:
        """Walk until told to stop; the page at hand is finished."""
        while not self.stop.is_set():
            self.turned = time.monotonic()
            if all([self._turn(shard) for shard in self.shards]):  # noqa: C419 - a shard that fails holds up no other
                self.finished = time.monotonic()
                self._failures = 0
                self.stop.wait(self.settings.pause)
            else:
                self.stop.wait(min(self.settings.pause, 2.0 ** min(self._failures, 10)))

    def try_walk(
        self, pubsub_topic: str, least: float, *, only_recent: bool = False, advance: bool = True
    ) -> Tally | None:
        """Walk a shard to now, and return what was found; None if the end was not reached, which is logged.

        Args:
            pubsub_topic: the shard.
            least: from when on, in seconds since the epoch.
            only_recent: begin at the watermark if that is later.
            advance: whether the watermark moves at the end: not where something between it and `least` is left out.
        """
        try:
            tally = self._walk(pubsub_topic, least, only_recent=only_recent, advance=advance)
        except Stopped:
            return None
        except Exception as error:
            self._failures += 1
            metrics.STORE_WALKS.labels(self.kind.name, type(error).__name__).inc()
            facts = {"store": self.name, "pubsub_topic": pubsub_topic, "walk": self.kind.name}
            if not (isinstance(error, NodeError | Interrupted) or is_outage(error)):
                log.exception("walk_failed", **facts)
            elif is_told(self._failures):
                log.warning("walk_failed", **facts, error=type(error).__name__, failures=self._failures)
            return None
        metrics.STORE_WALKS.labels(self.kind.name, "finished").inc()
        return tally

    def _turn(self, pubsub_topic: str) -> bool:
        """Walk from the watermark on and, if it is time, over the whole window; say whether the end was reached.

        What is recent goes first: somebody may be waiting for it.
        """
        begun = time.monotonic()
        least = time.time() - self.kind.window
        tally = self.try_walk(pubsub_topic, least, only_recent=True)
        if tally is not None and tally.since > least and begun >= self._full_due.get(pubsub_topic, -math.inf):
            tally = self.try_walk(pubsub_topic, least)
        if tally is not None and tally.since <= least:
            self._full_due[pubsub_topic] = begun + self.settings.full_interval
        return tally is not None

    def _recent(self, pubsub_topic: str, least: float) -> float:
        """Return from when on to walk (seconds since the epoch), so that what came late or is still missing is met.

        A watermark that lies in the future by more than the overlap is one of a clock that was ahead, and says nothing;
        the walk puts it right.
        """
        with self.pool.connection() as connection:
            walked_to = reconciliation.watermark(connection, self._track(pubsub_topic))
        if walked_to is None or walked_to > self._latest():
            return least
        if (unsettled := self._unsettled.get(pubsub_topic)) is not None:
            walked_to = min(walked_to, unsettled)
        return max(walked_to / _NANOSECONDS - self.settings.overlap, least)

    def _latest(self) -> int:
        """Return the latest watermark that clocks which differ a little can make, in nanoseconds since the epoch."""
        return int((time.time() + self.settings.overlap) * _NANOSECONDS)

    def _walk(self, pubsub_topic: str, least: float, *, only_recent: bool, advance: bool) -> Tally:
        """Enqueue what is missing of a shard.

        Raises:
            Interrupted: see there.
            NodeError: the Store failed.
            Exception: one that `is_outage`.
        """
        end = time.time_ns()
        start = self._recent(pubsub_topic, least) if only_recent else least
        query = Query(
            pubsub_topic=pubsub_topic,
            content_topics=self.kind.content_topics,
            start=max(1, int(start * _NANOSECONDS)),
            end=end,
        )
        self._check_watching()
        tally = Tally(start)
        for page in self._pages(query):
            self._heal(query, page, tally)
            self.report(tally)
        self._check_watching()
        # What is missing is looked for again until it is in the ledger, whoever has it meanwhile.
        self._unsettled[pubsub_topic] = tally.oldest_missing
        if advance:
            settled = end if tally.oldest_missing is None else min(end, tally.oldest_missing - 1)
            with self.pool.connection() as connection:
                walked_to = reconciliation.advance(connection, self._track(pubsub_topic), settled, most=self._latest())
            lag = time.time() - walked_to / _NANOSECONDS
            metrics.STORE_WATERMARK_LAG.labels(self.name, pubsub_topic, self.kind.name).set(lag)
        (log.info if tally.missing or tally.malformed else log.debug)(
            "walk_finished",
            store=self.name,
            pubsub_topic=pubsub_topic,
            walk=self.kind.name,
            since=round(start, 3),
            examined=tally.examined,
            missing=tally.missing,
            enqueued=tally.enqueued,
            malformed=tally.malformed,
        )
        return tally

    def _check_watching(self) -> None:
        """Check that queries can be told from foreign messages, if this walk is to find them.

        Raises:
            NotWatching: they cannot.
        """
        if not self.kind.content_topics and not watched.is_complete(self.enqueuer.redis):
            raise NotWatching

    def _pages(self, query: Query) -> Iterator[Page]:
        """Yield the pages of a walk, each when the queues are not behind.

        Raises:
            Stopped: the process is to end.
        """
        # Of the own topics most are in the ledger, of a whole shard next to none: hashes would only be asked for first.
        pages = self.store.walk(query, with_messages=not self.kind.content_topics)
        while True:
            self.turned = time.monotonic()
            while self.rest.is_due() and not self.stop.wait(LOOK_SECONDS):
                self.turned = time.monotonic()
            if self.stop.is_set():
                raise Stopped
            page = next(pages, None)
            if page is None:
                return
            yield page

    def _heal(self, query: Query, page: Page, tally: Tally) -> None:
        """Enqueue what of a page is for us, is not in the ledger, and is in no worker's hands."""
        tally.examined += len(page.found)
        metrics.STORE_EXAMINED.labels(self.kind.name).inc(len(page.found))
        known = {stored.hash: stored.message for stored in page.found}
        missing = {}
        if known:
            with self.pool.connection() as connection:
                missing = reconciliation.missing(connection, known)
        if to_fetch := [hash_ for hash_ in missing if known[hash_] is None]:
            fetched = self.store.fetch(query.pubsub_topic, to_fetch)
            known |= {stored.hash: stored.message for stored in fetched.found if stored.hash in missing}
            self._note_malformed(fetched.malformed, tally)
        self._note_malformed(page.malformed, tally)
        now = time.time()
        entries = [
            Entry(query.pubsub_topic, hash_, first_seen(message, query.start, now), message)
            for hash_ in missing
            if (message := known[hash_]) is not None
        ]
        ours = [entry for queue, entry in self.enqueuer.ours(entries) if queue in self.kind.queues]
        if not ours:
            return
        tally.missing += len(ours)
        metrics.STORE_MISSING.labels(self.kind.name).inc(len(ours))
        oldest = min(entry.message.timestamp or query.start for entry in ours)
        tally.oldest_missing = oldest if tally.oldest_missing is None else min(oldest, tally.oldest_missing)
        enqueued = self.enqueuer.enqueue([entry for entry in ours if not missing[entry.hash]])
        tally.enqueued += enqueued.sent
        metrics.STORE_ENQUEUED.labels(self.kind.name).inc(enqueued.sent)
        if enqueued.dropped:
            raise NotEnqueued

    def _note_malformed(self, malformed: int, tally: Tally) -> None:
        tally.malformed += malformed
        metrics.STORE_MALFORMED.labels(self.kind.name).inc(malformed)

    def _track(self, pubsub_topic: str) -> Track:
        return Track(self.name, pubsub_topic, self.kind.name)


def first_seen(message: WakuMessage, start: int, now: float) -> float:
    """Return since when a message is taken to be in the Store, in seconds since the epoch.

    That is its sender's time, unless it is not over yet. Without one it may be as old as the walk looks back, so that a
    push request is rather called expired than pushed hours late.

    Args:
        message: out of a Store.
        start: of the walk, in nanoseconds since the epoch.
        now: seconds since the epoch.
    """
    return min(now, (message.timestamp or start) / _NANOSECONDS)


def stores_of(settings: Settings) -> dict[str, str]:
    """Return the URLs of the nodes whose Stores are walked, by their names."""
    return {node_name(url): url for url in settings.reconcile.stores or [settings.waku.url]}


def node_name(url: str) -> str:
    """Return how a node is called in watermarks, metrics and logs: host, port and path, never a password."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.hostname}:{port}{parts.path.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All walkers of a process, and what they share."""

    walkers: list[Walker]
    enqueuer: Enqueuer
    pool: ConnectionPool

    @classmethod
    def open(cls, settings: Settings, stop: Event) -> Reconciliation:
        """Open everything. Postgres, Redis and the nodes may be down meanwhile.

        Raises:
            SettingsError: there is no public key, or an address is none.
        """
        chosen = settings.reconcile
        routes = Routes.load(settings)
        stores = stores_of(settings)
        kinds = (
            Kind(name="query_topics", queues=frozenset({QUERY}), window=chosen.query_window),
            Kind(
                name="own_topics",
                content_topics=tuple(routes.queues),
                queues=frozenset(routes.queues.values()),
                window=chosen.window,
            ),
        )
        redis = open_redis(settings.redis)
        pool = open_pool(settings.postgres)
        enqueuer = Enqueuer(celery_app(settings), redis, routes, settings.ingest)
        rest = Rest(redis, chosen.backlog_age)
        walkers = [
            Walker(
                name=name,
                store=Store(url, timeout=settings.waku.timeout),
                kind=kind,
                shards=settings.waku.shards,
                enqueuer=enqueuer,
                pool=pool,
                settings=chosen,
                rest=rest,
                stop=stop,
            )
            for name, url in stores.items()
            for kind in kinds
        ]
        return cls(walkers, enqueuer, pool)

    def close(self) -> None:
        """Close all connections."""
        for walker in self.walkers:
            walker.store.close()
        self.enqueuer.app.close()
        self.enqueuer.redis.close()
        self.pool.close()

    def healthy(self) -> probes.Checks:
        """Say of each walker whether its loop turns."""
        now = time.monotonic()
        return {
            f"{walker.name} {walker.kind.name}": now - walker.turned < walker.settings.pause + STUCK_SECONDS
            for walker in self.walkers
        }

    def ready(self) -> probes.Checks:
        """Say of each Store whether it was walked to the end a short time ago."""
        now = time.monotonic()
        finished: dict[str, float] = {}
        for walker in self.walkers:
            finished[walker.name] = min(walker.finished, finished.get(walker.name, math.inf))
        pause = self.walkers[0].settings.pause
        return {name: now - at < pause + UNWALKED_SECONDS for name, at in finished.items()}


def run(settings: Settings) -> None:
    """Walk again and again until SIGTERM or SIGINT; the pages at hand are finished.

    Raises:
        SettingsError: there is no public key, or an address is none.
    """
    stop = stop_on_signals()
    reconciliation_ = Reconciliation.open(settings, stop)
    tracing.start(settings.tracing, "ingest reconcile")
    walkers = reconciliation_.walkers
    threads = [Thread(target=walker.run, name=f"{walker.name} {walker.kind.name}") for walker in walkers]
    port = None
    if settings.reconcile.http_port >= 0:
        port = probes.serve(
            settings.reconcile.http_port,
            setting="WAKUPUSH_RECONCILE__HTTP_PORT",
            healthy=reconciliation_.healthy,
            ready=reconciliation_.ready,
        )
    for thread in threads:
        thread.start()
    log.info("started", stores=sorted({walker.name for walker in walkers}), http_port=port)
    for thread in threads:
        thread.join()
    tracing.stop()
    reconciliation_.close()
    log.info("stopped")
