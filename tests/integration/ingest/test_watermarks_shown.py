"""The watermark that an alert looks at is right after a restart, also if the Store is dead, and Postgres with it."""

import time

import pytest
from prometheus_client import REGISTRY

from support.reconciling import NOWHERE, SHARD, ago, looked_back, turn
from wakupush.ingest.reconcile.walk import NANOSECONDS
from wakupush.postgres import reconciliation


def watermark_metric(recent):
    """The metric in seconds since the epoch; None without a series."""
    labels = {"store": recent.walker.name, "pubsub_topic": SHARD, "walk": recent.walker.kind.name}
    return REGISTRY.get_sample_value("wakupush_reconcile_watermark_timestamp_seconds", labels)


@pytest.fixture
def restart(bench):
    """Return what looks for recent registrations in a new process whose Store is dead."""
    processes = []

    def start(**options):
        process, _, registrations, _ = bench.walkers(stores=(NOWHERE,), **options)
        processes.append(process)
        return registrations

    yield start
    for process in processes:
        process.close()


def test_dead_store_shows_its_watermark(bench, restart):
    own = restart()
    at = ago(7200)
    reconciliation.advance(
        bench.connection, own.walker.track(SHARD), int(at * NANOSECONDS), most=int(time.time() * NANOSECONDS)
    )
    assert turn(own) is None
    assert watermark_metric(own) == pytest.approx(at, abs=0.001)
    assert turn(own) is None
    assert watermark_metric(own) == pytest.approx(at, abs=0.001)


def test_unwalked_store_ages_from_the_start(restart):
    before = time.time()
    own = restart()
    first_value = watermark_metric(own)
    assert before <= first_value <= time.time()
    assert turn(own) is None
    assert watermark_metric(own) == first_value


def test_without_postgres_the_watermark_is_the_start(restart):
    before = time.time()
    own = restart(dsn="postgresql://127.0.0.1:1/none")
    assert turn(own) is None
    assert before <= watermark_metric(own) <= time.time()


def test_a_walk_to_the_end_moves_what_is_shown(bench, recent_walks):
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(10), None)
    assert watermark_metric(own) == pytest.approx(ago(10), abs=2)
    assert looked_back(own) is not None
    assert watermark_metric(own) == bench.watermark(own) / NANOSECONDS
