"""Which counters the processes of ingest begin at 0."""

from itertools import product

from wakupush.model.limits import TOPIC_MESSAGES
from wakupush.model.queues import POOLS, QUEUES
from wakupush.runtime import metrics
from wakupush.runtime.counters import Series
from wakupush.runtime.settings import Settings


def of_enqueueing() -> Series:
    """Return the series of enqueueing, for both processes."""
    return {
        metrics.MESSAGES_ENQUEUED: product(QUEUES),
        metrics.MESSAGES_REPEATED: product(QUEUES),
        metrics.MESSAGES_DROPPED: product(("redis", "queue_full")),
        metrics.LIMITED: product((TOPIC_MESSAGES,), ("let_through", "held_back")),
    }


def of_live(settings: Settings) -> Series:
    """Return the series of `wakupush ingest live`."""
    nodes, shards = settings.waku.nodes, settings.waku.shards
    return {
        metrics.MESSAGES_READ: product(nodes, shards),
        metrics.MESSAGES_MALFORMED: product(nodes, shards),
        metrics.CACHE_FULL: product(nodes),
        metrics.SUBSCRIPTIONS: product(nodes),
        metrics.BEACONS: product(nodes, ("published", "refused")) if len(nodes) > 1 else (),
    }


def of_reconcile(settings: Settings) -> Series:
    """Return the series of `wakupush ingest reconcile`, whose walks have the names of queues."""
    return {
        metrics.STORE_EXAMINED: product(QUEUES),
        metrics.STORE_MALFORMED: product(QUEUES),
        metrics.STORE_MISSING: product(QUEUES),
        metrics.STORE_ENQUEUED: product(QUEUES),
        metrics.STORE_WALKS: product(QUEUES, ("finished",)),
        metrics.STORES_COMPARED: product(settings.stores),
        metrics.STORE_LACKS: product(settings.stores),
        metrics.RECONCILE_RESTS: product(POOLS),
    }
