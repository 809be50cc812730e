"""The process: a poller for each shard of each node."""

import time
from threading import Thread

import structlog
from redis import Redis, RedisError

from wakupush.ingest.counters import of_enqueueing, of_live
from wakupush.ingest.enqueue import Enqueuer
from wakupush.ingest.live.beacons import Beacons
from wakupush.ingest.live.hearing import Hearing
from wakupush.ingest.live.peers import RelayPeers
from wakupush.ingest.live.poller import Cache, Poller
from wakupush.ingest.routing import Routes
from wakupush.redis import watched
from wakupush.redis.celery_app import celery_app
from wakupush.redis.presence import Presence
from wakupush.runtime import counters, metrics, probes, tracing
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.runtime.stopping import stop_on_signals
from wakupush.waku.node import WakuNode
from wakupush.waku.publisher import PUBLISH_SECONDS

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds without a turn of its loop after which a poller counts as stuck.
STUCK_SECONDS = 60.0
#: Seconds without a successful read after which ingest is not ready.
UNREAD_SECONDS = 10.0
#: Port of its probes, unless a setting says otherwise.
HTTP_PORT = 9100
#: Seconds between looks at the marker of the watched topics.
MARKER_SECONDS = 5.0


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT; enqueue all messages that were read before returning.

    Raises:
        SettingsError: there is no public key, or it is not valid; or the extra ``otel`` is missing.
    """
    routes = Routes.load(settings)
    tracing.start(settings.tracing, "ingest live")
    redis = open_redis(settings.redis)
    enqueuer = Enqueuer(celery_app(settings), redis, routes, settings.ingest)
    stop = stop_on_signals()
    counters.begin(of_enqueueing(), of_live(settings))
    urls, shards = settings.waku.nodes, settings.waku.shards
    beacons = None
    if len(urls) > 1:
        publish_on = {name: WakuNode(url, timeout=PUBLISH_SECONDS) for name, url in urls.items()}
        beacons = Beacons(publish_on, shards, Hearing(tuple(urls), shards), redis, stop)
    pollers = []
    for name, url in urls.items():
        cache = Cache(settings.waku.cache_capacity)
        for shard in shards:
            node = WakuNode(url, timeout=settings.waku.timeout, max_read_bytes=settings.waku.max_read_bytes)
            interval = settings.ingest.poll_interval
            pollers.append(Poller(name, node, enqueuer, shard, interval, stop, cache, beacons))
    threads = [Thread(target=poller.run, name=f"{poller.name} {poller.pubsub_topic}") for poller in pollers]
    for name, url in urls.items():
        peers = RelayPeers(name, WakuNode(url, timeout=PUBLISH_SECONDS), shards, redis, stop)
        threads.append(Thread(target=peers.run, name=f"{name} peers"))
    if beacons is not None:
        threads.append(Thread(target=beacons.run, name="beacons"))
    health = probes.Probes(healthy=lambda: _healthy(pollers), ready=lambda: _ready(pollers, redis))
    port = probes.serve(settings, HTTP_PORT, health)
    for thread in threads:
        thread.start()
    log.info("started", nodes=list(urls), shards=shards, http_port=port)
    with Presence(open_redis(settings.redis), "ingest live", lambda: _ready(pollers, redis)):
        while not stop.wait(MARKER_SECONDS):
            metrics.WATCHED_COMPLETE.set(_watched_complete(redis))
        for thread in threads:
            thread.join()
    tracing.stop()
    log.info("stopped")


def _healthy(pollers: list[Poller]) -> probes.Checks:
    now = time.monotonic()
    return {f"{poller.name} {poller.pubsub_topic}": now - poller.turned_at < STUCK_SECONDS for poller in pollers}


def _ready(pollers: list[Poller], redis: Redis) -> probes.Checks:
    now = time.monotonic()
    checks = dict.fromkeys((poller.pubsub_topic for poller in pollers), False)
    for poller in pollers:
        checks[poller.pubsub_topic] |= now - poller.last_read < UNREAD_SECONDS
    return checks | {"watched query topics": _watched_complete(redis)}


def _watched_complete(redis: Redis) -> bool:
    try:
        return watched.is_complete(redis)
    except RedisError:
        return False
