"""Reconciliation against development nodes of both kinds."""

import pytest

from support.devnet import serving
from support.reconciling import SHARD, WINDOW, Bench
from wakupush.redis import watched


@pytest.fixture(scope="session", params=["nwaku", "go-waku"])
def node_url(request, tmp_path_factory, forkserver):
    options = ("--manners", request.param, "--shard", SHARD, "--archive-window", "any")
    with serving("waku", tmp_path_factory.mktemp("node") / "log", *options, forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture
def redis(redis):
    """An empty Redis that says it has all watched topics."""
    watched.mark_complete(redis, watched.begin_filling(redis))
    return redis


@pytest.fixture
def bench(node_url, dsn, redis_server, redis, connection):
    bench = Bench(node_url, dsn, redis_server, redis, connection)
    yield bench
    bench.stop.set()


@pytest.fixture
def recent_walks(bench):
    reconciliation, queries, registrations, requests = bench.walkers()
    yield queries, registrations, requests
    reconciliation.close()


@pytest.fixture
def whole(bench):
    """What walks the whole window for registrations, and what looks for recent ones."""
    reconciliation, _, registrations, _ = bench.walkers(window=WINDOW)
    yield reconciliation.thorough[0], registrations
    reconciliation.close()
