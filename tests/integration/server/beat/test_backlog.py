"""Many deliveries that wait: claiming them stays an index scan, and they do not come before new requests."""

import json
from dataclasses import replace

import psycopg
import pytest
from prometheus_client import REGISTRY

from support import plans
from support.rows import ANDROID, IOS
from support.served import trip
from wakupush.model.failures import Route
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH
from wakupush.postgres.due import _SQL
from wakupush.runtime.settings import Settings
from wakupush.server.beat.beat import open_beat
from wakupush.server.beat.deliveries import claim_due
from wakupush.server.beat.pace import Pace
from wakupush.server.delivery.breaker import CACHE_SECONDS, PROBES, Breaker

#: Notifications in a task of the schedule.
BATCH = Settings().gorush.batch_size
#: All of Firebase, and due before what there is of APNs: a scan by time alone would read past them.
FILL = """
INSERT INTO deliveries (
    delivery_key, key_hash, installation_hash, platform, notification_type, state, attempt, failure,
    next_attempt_at, lease, lease_until, seen_at, expires_at, task_id, trace_id
)
SELECT
    int8send(n), '\\x61', '\\x62', CASE WHEN n %% 1000 = 0 THEN 1 ELSE 2 END, 1,
    CASE WHEN n %% 500 = 1 THEN 'posting' ELSE 'pending' END, 1, 'platform_unreachable',
    CASE WHEN n %% 500 <> 1 THEN now() - interval '1 day' + n * interval '1 ms' END,
    CASE WHEN n %% 500 = 1 THEN gen_random_uuid() END,
    CASE WHEN n %% 500 = 1 THEN now() + interval '1 minute' END,
    now(), now() + interval '1 day', 'task-' || n, 'trace'
FROM generate_series(1, %s) AS n
"""


def fill(dsn, rows):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FILL, [rows])
        connection.execute("VACUUM ANALYZE deliveries")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def resources(dsn, redis_server, redis, node):  # noqa: ARG001 - Redis is empty
    resources = open_beat(Settings(redis={"url": redis_server.url}, postgres={"dsn": dsn}, waku={"url": node}))
    yield replace(resources, clock=Clock(), pace=Pace(4))
    resources.close()
    resources.app.close()


def plan(connection, platform=None):
    """Return the nodes of the plan of a claim, as it ran; or those of the look for platforms of which any is due."""
    parameters = {"app": "", "platform": platform, "limit": 200, "seconds": 60, "lease_lost": "lease_lost"}
    with connection.transaction(force_rollback=True):
        return plans.executed(connection, _SQL["claim" if platform else "app_platforms"], parameters)


def assert_reads_one_row_of_each_index(nodes):
    """Of a look for platforms with due deliveries: it must not depend on how many there are, nor on their attempts."""
    scans = [node for node in nodes if "Index Name" in node]
    assert {node["Index Name"] for node in scans} == {"deliveries_app_due", "deliveries_app_lapsed"}
    # Of a scan that runs several times, the rows are the average.
    assert max(node["Actual Rows"] for node in scans) <= 1
    assert sum(node.get("Rows Removed by Filter", 0) for node in nodes if "Index Name" in node) == 0


@pytest.mark.parametrize("backlog", [400_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_backlog_does_not_come_before_new_requests(resources, dsn, redis, backlog):
    fill(dsn, backlog)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert_reads_one_row_of_each_index(plan(connection))
        for platform in Platform:
            nodes = plan(connection, platform)
            scans = {node["Index Name"] for node in nodes if node["Node Type"] == "Index Scan"}
            assert {"deliveries_app_due", "deliveries_app_first", "deliveries_app_lapsed", "deliveries_pkey"} <= scans
            assert not [node for node in nodes if node["Node Type"] in {"Seq Scan", "Sort"}]
            # Nothing is read that is not claimed, whatever the other platform has.
            assert sum(node.get("Rows Removed by Filter", 0) for node in nodes) == 0
            row_counts = [node["Actual Rows"] for node in nodes if node.get("Index Name") == "deliveries_app_due"]
            assert [int(rows) for rows in row_counts] == [200]

            # The same holds where an outage left as many that were never attempted.
            with connection.transaction(force_rollback=True):
                connection.execute("UPDATE deliveries SET attempt = 0 WHERE platform = %s", [platform])
                assert_reads_one_row_of_each_index(plan(connection))
                nodes = plan(connection, platform)
            assert not [node for node in nodes if node["Node Type"] in {"Seq Scan", "Sort"}]
            assert sum(node.get("Rows Removed by Filter", 0) for node in nodes) == 0
            row_counts = {node["Index Name"]: int(node["Actual Rows"]) for node in nodes if "Index Name" in node}
            assert (row_counts["deliveries_app_first"], row_counts["deliveries_app_due"]) == (100, 100)

    claimed = [claim_due(resources) for _ in range(20)]
    assert claimed == [4 * BATCH, *[0] * 19]
    assert redis.llen(DISPATCH.name) == 4
    # A worker takes a task, and one more is added; what it is doing is all that a new request has to wait for besides.
    redis.rpop(DISPATCH.name)
    assert [claim_due(resources) for _ in range(3)] == [BATCH, 0, 0]
    sizes = [json.loads(raw)["headers"]["messages"] for raw in redis.lrange(DISPATCH.name, 0, -1)]
    assert sizes == [BATCH] * 4


def test_nothing_is_claimed_for_a_platform_whose_breaker_is_open(resources, dsn, redis):
    fill(dsn, 1000 * 4 * BATCH)  # of which each thousandth is for iOS
    trip(resources.breaker, ANDROID)
    assert claim_due(resources) == 4 * BATCH
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT platform, count(*) FROM deliveries WHERE next_attempt_at > now() GROUP BY 1"
        ).fetchall()
    assert rows == [(Platform.IOS, 4 * BATCH)]
    tasks = [json.loads(raw)["headers"]["argsrepr"] for raw in redis.lrange(DISPATCH.name, 0, -1)]
    assert tasks == [f"(ios, attempt 2 of 10, after platform_unreachable, {BATCH} together)"] * 4


def test_a_breaker_is_shown_also_while_nothing_is_due(resources):
    def gauge_value():
        return REGISTRY.get_sample_value("wakupush_breaker_state", {"app": "", "platform": "ios"})

    trip(resources.breaker)
    assert claim_due(resources) == 0
    assert gauge_value() == 2
    resources.breaker.note(IOS, [Route.WORKS], probe=True)
    assert claim_due(resources) == 0
    assert gauge_value() == 0


def test_no_more_is_claimed_than_the_breaker_probes(resources, dsn, redis):
    fill(dsn, 1000 * BATCH)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM deliveries WHERE platform = %s", [Platform.IOS])
    clock = Clock()
    breaker = Breaker(redis, resources.settings.breaker, 60, clock)
    beat = replace(resources, breaker=breaker)
    trip(breaker, ANDROID)
    assert claim_due(beat) == 0
    redis.delete("wakupush:breaker:android:open")
    clock.now = CACHE_SECONDS
    # No worker takes them: more would be put back, and lose their turn.
    assert [claim_due(beat) for _ in range(5)] == [PROBES, 0, 0, 0, 0]
    clock.now = 2 * CACHE_SECONDS
    assert claim_due(beat) == PROBES


def test_the_backlog_of_one_platform_does_not_keep_out_the_other(resources, dsn, redis):
    fill(dsn, 100_000)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE deliveries SET platform = 1 + platform % 2")  # what is served first has more to do
    platforms = set()
    for _ in range(50):
        assert claim_due(resources) > 0
        tasks = [json.loads(raw)["headers"] for raw in redis.lrange(DISPATCH.name, 0, -1)]
        platforms |= {headers["argsrepr"].split()[0].strip("(,") for headers in tasks}
        redis.ltrim(DISPATCH.name, 0, 0)
    assert platforms == {"ios", "android"}


def test_a_full_queue_leaves_each_platform_a_share(resources, dsn, redis):
    fill(dsn, 1000)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE deliveries SET platform = 1 WHERE delivery_key <= int8send(500)")
        connection.execute("UPDATE deliveries SET lease_until = now() WHERE state = 'posting'")
    redis.lpush(DISPATCH.name, *[b"a new request"] * 9)
    for resources.clock.now in (0.0, 1.0, 1.5, 2.0):
        claim_due(resources)
    enqueued = [json.loads(raw)["headers"] for raw in redis.lrange(DISPATCH.name, 0, -1) if raw.startswith(b"{")]
    messages = {"ios": 0, "android": 0}
    for headers in enqueued:
        messages[headers["argsrepr"].split()[0].strip("(,")] += headers["messages"]
    assert messages == {"ios": 2 * BATCH, "android": 2 * BATCH}
    assert any("lease_lost" in headers["argsrepr"] for headers in enqueued)


def drain(resources, redis, workers):
    """Let so many workers each take two tasks from look to look; return the deliveries claimed at 20 looks."""
    redis.delete(DISPATCH.name)
    claims = 0
    for _ in range(20):
        claims += claim_due(resources)
        redis.rpop(DISPATCH.name, 2 * workers)
    return claims


def test_a_backlog_drains_faster_with_more_workers(resources, dsn, redis):
    fill(dsn, 30_000)
    one, four = (drain(replace(resources, pace=Pace(4)), redis, workers) for workers in (2, 8))
    assert one == pytest.approx(20 * 2 * 2 * BATCH, rel=0.1)
    assert four == pytest.approx(4 * one, rel=0.2)


def test_expired_deliveries_are_counted_by_an_index(dsn):
    fill(dsn, 30_000)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for expired in (0, 10_000):
            connection.execute(
                "UPDATE deliveries SET expires_at = now() WHERE delivery_key < int8send(%s) AND state = 'pending'",
                [expired],
            )
            nodes = plans.executed(connection, _SQL["expired"], {"most": 1000})
            [scan] = [node for node in nodes if "Index Name" in node]
            assert scan["Index Name"] == "deliveries_expiring"
            assert int(scan["Actual Rows"]) == min(1000, expired)
            assert scan.get("Rows Removed by Filter", 0) == 0
