"""``wakupush status`` on real parts."""

import json
import time

import pytest
from psycopg.conninfo import make_conninfo
from redis import Redis

from support import commands
from support.deciding import IDENTITY
from wakupush.model.events import Event, EventKind
from wakupush.model.failures import Route
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.queues import DISPATCH
from wakupush.model.roles import Role
from wakupush.operate.status import NEEDED
from wakupush.postgres import events, exporting, reconciliation, token_trials
from wakupush.postgres.reconciliation import Track
from wakupush.redis import presence, watched
from wakupush.redis.presence import Presence
from wakupush.runtime.settings import BreakerSettings
from wakupush.server.delivery.breaker import Breaker

SHARD = "/waku/2/rs/16/32"
IOS, ANDROID = (AppPlatform("", platform) for platform in (Platform.IOS, Platform.ANDROID))


@pytest.fixture
def redis(redis):
    watched.mark_complete(redis, watched.begin_filling(redis))
    return redis


@pytest.fixture
def run(dsn, redis_server, node):
    environment = {
        "WAKUPUSH_WAKU__URL": node,
        "WAKUPUSH_WAKU__SHARDS": json.dumps([SHARD]),
        "WAKUPUSH_REDIS__URL": redis_server.url,
        "WAKUPUSH_POSTGRES__DSN": make_conninfo(dsn, user=Role.OPERATOR),
    }

    return lambda *options, expect=0, **changes: (
        commands.run("status", *options, expect=expect, env=environment | changes).output
    )


@pytest.fixture
def well(announce, redis):  # noqa: ARG001 - its topics are complete
    announce(*NEEDED, well=True)


def problems(run, **changes):
    return " | ".join(json.loads(run("--json", expect=1, **changes))["problems"])


@pytest.mark.usefixtures("well")
def test_a_server_that_is_well_has_no_problems(run):
    assert run().startswith("all is well")
    facts = json.loads(run("--json"))
    assert facts["problems"] == []
    assert {process["role"] for process in facts["processes"]} == set(NEEDED)
    assert facts["queues"].keys() >= {"registration", "query", "dispatch"}


@pytest.mark.usefixtures("redis")
def test_processes_that_do_not_run_are_named(run):
    assert all(f"no `wakupush {role}` runs" in problems(run) for role in NEEDED)


@pytest.mark.usefixtures("well")
def test_a_killed_process_is_missed(run, monkeypatch):
    monkeypatch.setattr(presence, "GONE_SECONDS", -1)
    assert "no `wakupush worker dispatch` runs" in problems(run)


def test_a_process_that_ends_in_order_is_gone_at_once(redis, redis_server):
    with Presence(Redis.from_url(redis_server.url), "beat", dict):
        deadline = time.monotonic() + 60
        while not presence.read(redis) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [process.role for process in presence.read(redis)] == ["beat"]
    assert presence.read(redis) == []


def test_a_process_shows_within_seconds_that_it_became_ready(redis, redis_server):
    checks = iter([{"connected": False}])
    with Presence(Redis.from_url(redis_server.url), "beat", lambda: next(checks, {"connected": True})):
        deadline = time.monotonic() + presence.WRITE_SECONDS
        failing = []
        while failing != [(), ("connected",)] and time.monotonic() < deadline:
            failing = sorted({*failing, *(process.failing for process in presence.read(redis))})
            time.sleep(0.01)
    assert failing == [(), ("connected",)]


def test_long_gone_processes_are_forgotten(redis, announce, monkeypatch):
    announce("beat")
    presence.forget(redis)
    assert [process.role for process in presence.read(redis)] == ["beat"]
    monkeypatch.setattr(presence, "FORGOTTEN_SECONDS", -1)
    presence.forget(redis)
    assert redis.hlen(presence.KEY) == 0


@pytest.mark.usefixtures("well")
def test_a_process_that_is_not_ready_says_why(run, announce):
    announce("worker query", consumer=False, connected=True)
    assert "is not ready: consumer" in problems(run)


@pytest.mark.usefixtures("well")
def test_an_open_breaker_is_a_problem(run, redis_server):
    commands.run("breaker", "open", "android", env={"WAKUPUSH_REDIS__URL": redis_server.url})
    assert "the breaker of android is open" in problems(run)


@pytest.mark.usefixtures("well")
def test_posts_that_fail_are_a_problem_before_the_breaker_opens(run, redis):
    breaker = Breaker(redis, BreakerSettings(faults=3), probe_seconds=60)
    for _ in range(2):
        breaker.note(ANDROID, [Route.BROKEN], probe=False)
    assert "the last 2 posts for android failed or hung" in problems(run)
    breaker.note(ANDROID, [Route.WORKS], probe=False)
    assert run().startswith("all is well")


@pytest.mark.usefixtures("well")
def test_a_queue_that_is_behind_is_a_problem(run, redis):
    redis.lpush(DISPATCH.name, json.dumps({"body": "", "content-encoding": "x", "headers": {"seen": time.time() - 99}}))
    assert "the queue dispatch is behind" in problems(run)


@pytest.mark.usefixtures("well")
def test_what_postgres_knows_is_told(run, connection, node):
    token_trials.count(connection, [(IOS, True, True)] * 60)
    track = Track(node.removeprefix("http://"), SHARD, "dispatch")
    reconciliation.advance(connection, track, time.time_ns() - 3_600 * 10**9, most=time.time_ns())
    connection.execute(
        "INSERT INTO deliveries (delivery_key, key_hash, installation_hash, platform, notification_type,"
        " sealed_content, state, attempt, seen_at, expires_at, next_attempt_at, task_id, trace_id) VALUES ('key',"
        " 'user', 'phone', 1, 1, 'content', 'pending', 1, now(), 'infinity', now() - interval '2 minutes', '', '')"
    )
    exporting.note_exported(connection, 0)
    old = [Event(kind=EventKind.RECEIVED, time=time.time() - 5 * 86_400, worker="w", trace_id="t")]
    events.add(connection, old, IDENTITY)
    text = problems(run)
    assert "`wakupush pipeline export` is 5.0 days behind" in text
    assert "too many device tokens of ios are bad" in text
    assert "reconcile is 3600 s behind" in text or "reconcile is 3601 s behind" in text
    assert "1 deliveries for ios are due, the longest for 12" in text


@pytest.mark.usefixtures("well")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"WAKUPUSH_WAKU__URL": "http://127.0.0.1:1"}, "the node 127.0.0.1:1 does not answer"),
        ({"WAKUPUSH_REDIS__URL": "redis://:planted@127.0.0.1:1"}, "Redis does not answer (ConnectionError)"),
        ({"WAKUPUSH_POSTGRES__DSN": "postgresql://u:planted@127.0.0.1:1/x"}, "Postgres does not answer"),
    ],
)
def test_a_part_that_is_down_is_named_and_the_rest_shown(run, changes, text):
    output = run("--json", expect=1, **changes)
    assert text in " | ".join(json.loads(output)["problems"])
    assert "planted" not in output
    assert "problems" in run(expect=1, **changes)


@pytest.mark.usefixtures("redis")
def test_a_wrong_clock_is_named(run, announce, monkeypatch):
    announce(*NEEDED[1:], well=True)
    monkeypatch.setattr(presence.time, "time", lambda now=time.time: now() + 42)
    announce(NEEDED[0], well=True)
    monkeypatch.undo()
    [problem] = json.loads(run("--json", expect=1))["problems"]
    assert problem.startswith(f"the clock of `wakupush {NEEDED[0]}` on ")
    assert problem.endswith("is +42 s off Redis': use NTP")
