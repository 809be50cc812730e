"""What waits, read from a real Redis and a real Postgres."""

import json
import re
import time

import pytest
from prometheus_client import CollectorRegistry
from psycopg.conninfo import make_conninfo

from support.deciding import IDENTITY
from support.rows import ANDROID, IOS
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.model.entries import Entry
from wakupush.model.events import Event, EventKind
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION, REST
from wakupush.model.roles import Role
from wakupush.postgres import events, exporting, limits
from wakupush.postgres.backlog import ExportBacklog, count_deliveries, export_backlog
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import backlog
from wakupush.redis.celery_app import celery_app
from wakupush.redis.sending import send_entries
from wakupush.runtime.settings import PostgresSettings, RedisSettings, Settings
from wakupush.workers.exporter import BacklogCollector

SHARD = "/waku/2/rs/16/32"


@pytest.fixture
def app(redis_server, redis):  # noqa: ARG001 - which is empty
    app = celery_app(Settings(redis=RedisSettings(url=redis_server.url)))
    yield app
    app.close()


def entries(count, first_arrival):
    client = PrivateKey.generate()
    message = messages.query(client, client.public_key.key_hash)
    return [
        Entry(SHARD, message_hash(SHARD, message), first_arrival + number, message, live=True)
        for number in range(count)
    ]


def test_messages_are_counted_not_tasks(redis, app):
    now = time.time()
    send_entries(app, QUERY, entries(64, now - 5))
    send_entries(app, QUERY, entries(3, now - 60))
    send_entries(app, REGISTRATION, entries(1, now))
    figures = backlog.look(redis)
    assert {name: (each.tasks, each.messages) for name, each in figures.items()} == {
        REGISTRATION.name: (1, 1),
        QUERY.name: (2, 67),
        DISPATCH.name: (0, 0),
        REST: (0, 0),
    }
    assert figures[QUERY.name].oldest == pytest.approx(now - 60, abs=0.001)
    assert figures[DISPATCH.name].oldest is None


def test_long_queue_is_estimated_from_a_sample(redis):
    now = time.time()
    # At first low load, then a growing backlog: the newest are at the head.
    sizes = [1] * 5_000 + [64] * 5_000 + [number % 64 + 1 for number in range(10_000)]
    body = "x" * 20_000
    with redis.pipeline(transaction=False) as pipeline:
        for number, size in enumerate(sizes):
            headers = {"messages": size, "seen": now - 1000 + number / 100}
            task = {"body": body, "content-encoding": "utf-8", "headers": headers}
            pipeline.lpush(DISPATCH.name, json.dumps(task))
        pipeline.execute()
    before = redis.info("stats")["total_net_output_bytes"]
    start_time = time.monotonic()
    figures = backlog.look(redis)[DISPATCH.name]
    print(f"20,000 tasks of 20 kB: {1000 * (time.monotonic() - start_time):.1f} ms")
    assert figures.tasks == len(sizes)
    assert figures.messages == pytest.approx(sum(sizes), rel=0.1)
    # Both ends are in the sample.
    assert figures.oldest == pytest.approx(now - 1000, abs=0.001)
    assert redis.info("stats")["total_net_output_bytes"] - before < 10_000


def test_large_tasks_are_sampled_within_bytes(redis):
    """Redis does nothing else while it reads them: strangers send messages of 1 MiB."""
    now = time.time()
    task = {"body": "x" * 2**20, "content-encoding": "utf-8", "headers": {"messages": 6, "seen": now}}
    oldest = json.dumps(task | {"headers": {"messages": 6, "seen": now - 50}})
    redis.lpush(DISPATCH.name, oldest, *[json.dumps(task)] * 39)
    unacked_task = json.dumps([task, "", DISPATCH.name])
    redis.hset(backlog.UNACKED, mapping={f"tag {number}": unacked_task for number in range(40)})
    redis.zadd(backlog.UNACKED_INDEX, {f"tag {number}": 0 for number in range(40)})
    redis.config_resetstat()
    figures = backlog.look(redis)[DISPATCH.name]
    assert (figures.messages, figures.tasks_in_flight, figures.messages_in_flight) == (240, 40, 240)
    assert figures.oldest == pytest.approx(now - 50, abs=0.001)
    calls = {name: stats["calls"] for name, stats in redis.info("commandstats").items()}
    assert calls["cmdstat_lindex"] <= 4
    assert calls["cmdstat_hget"] <= 5


def test_the_look_parses_no_body(redis):
    """What stands before the headers would end a parser of the whole."""
    headers = '"content-encoding": "utf-8", "headers": {"messages": 7, "seen": 5.0}}'
    redis.lpush(QUERY.name, f'{{"body": no JSON, {headers}')
    redis.hset(backlog.UNACKED, "tag", f'[{{"body": no JSON, {headers}, "", "{QUERY.name}"]')
    redis.zadd(backlog.UNACKED_INDEX, {"tag": 0})
    figures = backlog.look(redis)[QUERY.name]
    assert (figures.messages, figures.oldest, figures.messages_in_flight) == (7, 5.0, 7)


def test_the_bytes_of_a_queue_are_those_of_its_tasks(redis, app):
    assert backlog.look(redis)[QUERY.name].bytes == 0
    send_entries(app, QUERY, entries(64, 0.0))
    assert backlog.look(redis)[QUERY.name].bytes == pytest.approx(redis.memory_usage(QUERY.name), rel=0.01)
    assert backlog.look(redis)[QUERY.name].bytes > len(redis.lindex(QUERY.name, 0))


def test_strange_tasks_do_no_harm(redis):
    texts = ("", "{", "[]", '{"headers": null}', '"content-encoding": 1, "headers": {"messages": "x", "seen": []}}')
    for text in texts:
        redis.lpush(QUERY.name, text)
        redis.hset(backlog.UNACKED, text, text)
        redis.zadd(backlog.UNACKED_INDEX, {text: 0})
    figures = backlog.look(redis)[QUERY.name]
    assert (figures.tasks, figures.messages, figures.oldest) == (5, 5, None)
    assert (figures.tasks_in_flight, figures.messages_in_flight) == (0, 0)


def test_tasks_in_flight_belong_to_their_pool(redis, app):
    for queue, count in ((DISPATCH, 7), (DISPATCH, 2), (QUERY, 1)):
        send_entries(app, queue, entries(count, time.time()))
    with app.connection() as connection:
        channel = connection.default_channel
        deliveries = [channel.basic_get(name) for name in (DISPATCH.name, DISPATCH.name, QUERY.name)]
        assert all(deliveries)
        figures = backlog.look(redis)
        assert {name: (each.tasks_in_flight, each.messages_in_flight) for name, each in figures.items()} == {
            REGISTRATION.name: (0, 0),
            QUERY.name: (1, 1),
            DISPATCH.name: (2, 9),
            REST: (0, 0),
        }
        for message in deliveries:
            channel.basic_ack(message.delivery_tag)
        assert all(each.tasks_in_flight == 0 for each in backlog.look(redis).values())


def insert_deliveries(connection, platform, state, count, due_in="-1 minute"):
    connection.execute(
        "INSERT INTO deliveries (delivery_key, key_hash, installation_hash, platform, notification_type, state,"
        " attempt, next_attempt_at, lease, lease_until, seen_at, expires_at, finished_at, task_id, trace_id)"
        " SELECT uuid_send(gen_random_uuid()), '', '', %(platform)s, 1, %(state)s, 1,"
        " CASE WHEN %(state)s = 'pending' THEN now() + %(due_in)s::interval END,"
        " CASE WHEN %(state)s = 'posting' THEN gen_random_uuid() END,"
        " CASE WHEN %(state)s = 'posting' THEN now() END, now(), now(),"
        " CASE WHEN %(state)s NOT IN ('pending', 'posting') THEN now() END, '', ''"
        " FROM generate_series(1, %(count)s)",
        {"platform": platform.value, "state": state, "count": count, "due_in": due_in},
    )


def test_deliveries_by_platform(connection):
    insert_deliveries(connection, Platform.IOS, "pending", 3)
    insert_deliveries(connection, Platform.IOS, "pending", 4, due_in="1 hour")
    insert_deliveries(connection, Platform.ANDROID, "posting", 2)
    insert_deliveries(connection, Platform.ANDROID, "delivered", 9)
    ios, android = count_deliveries(connection, [IOS, ANDROID])
    assert (ios.app_platform, ios.pending, ios.due, ios.posting) == (IOS, 7, 3, 0)
    assert ios.due_age == pytest.approx(60, abs=5)
    assert (android.app_platform, android.pending, android.due, android.posting) == (ANDROID, 0, 0, 2)
    assert android.due_age == 0


def test_a_count_stops_at_its_limit(connection, monkeypatch):
    monkeypatch.setattr("wakupush.postgres.backlog.MOST", 5)
    insert_deliveries(connection, Platform.IOS, "pending", 9)
    ios, _ = count_deliveries(connection, [IOS, ANDROID])
    assert (ios.pending, ios.due) == (5, 5)


def test_events_that_wait_for_the_export(connection, monkeypatch):
    monkeypatch.setattr("wakupush.postgres.backlog.MOST", 5)
    assert export_backlog(connection) is None
    exporting.note_exported(connection, 0)
    assert export_backlog(connection) == ExportBacklog(0.0, 0)
    event = Event(kind=EventKind.RECEIVED, time=time.time() - 3600, worker="w", trace_id="t")
    events.add(connection, [event] * 9, IDENTITY)
    waiting = export_backlog(connection)
    assert waiting.rows == 5
    assert waiting.seconds == pytest.approx(3600, abs=60)


def scrape(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


def test_what_does_not_answer_has_no_figures(connection, dsn, redis_server, app):
    exporting.note_exported(connection, 0)
    begin = int(time.time())
    exporting.note_run(connection, "report", 90.0)
    exporting.note_run(connection, "report", 60.5)
    send_entries(app, DISPATCH, entries(5, time.time() - 7))
    own = PostgresSettings(dsn=make_conninfo(dsn, user=Role.EXPORTER))
    settings = Settings(redis=RedisSettings(url=redis_server.url), postgres=own)
    whole = scrape(BacklogCollector(settings))
    assert whole["wakupush_exporter_up", "redis"] == whole["wakupush_exporter_up", "postgres"] == 1
    assert whole["wakupush_queue_messages", "dispatch"] == 5
    assert 7 <= whole["wakupush_queue_oldest_seconds", "dispatch"] < 20
    assert whole["wakupush_deliveries_due", "", "ios"] == 0
    assert whole["wakupush_export_lag_rows", "delivery_events"] == 0
    assert whole["wakupush_pipeline_run_seconds", "report"] == 60.5
    assert begin <= whole["wakupush_pipeline_run_timestamp_seconds", "report"] <= time.time()
    assert whole["wakupush_connections", "postgres"] >= 2
    assert whole["wakupush_connections_limit", "postgres"] == limits.connections(connection)
    assert whole["wakupush_data_bytes", "postgres"] > 2**20
    assert 1 <= whole["wakupush_connections", "redis"] < whole["wakupush_connections_limit", "redis"]
    assert len({name for name, *_ in whole}) == 18
    ups = [("wakupush_exporter_up", "redis"), ("wakupush_exporter_up", "postgres")]
    nowhere = "127.0.0.1:1"
    no_redis = settings.model_copy(update={"redis": RedisSettings(url=f"redis://{nowhere}/0")})
    samples = scrape(BacklogCollector(no_redis))
    assert samples["wakupush_exporter_up", "redis"] == 0
    assert {*samples} == {*ups} | {
        one for one in whole if re.search("deliveries|export_lag|pipeline|postgres", str(one))
    }
    no_postgres = settings.model_copy(update={"postgres": PostgresSettings(dsn=f"postgresql://x@{nowhere}/x")})
    samples = scrape(BacklogCollector(no_postgres))
    assert samples["wakupush_exporter_up", "postgres"] == 0
    assert {*samples} == {*ups} | {
        one for one in whole if not re.search("deliveries|export_lag|pipeline|postgres", str(one))
    }


def test_the_limit_of_a_redis_that_has_one(dsn, redis_server, redis):
    settings = Settings(redis=RedisSettings(url=redis_server.url), postgres=PostgresSettings(dsn=dsn))
    collector = BacklogCollector(settings)
    assert ("wakupush_data_limit_bytes", "redis") not in scrape(collector)
    redis.config_set("maxmemory", 2**29)
    try:
        figures = scrape(collector)
        assert 0 < figures["wakupush_data_bytes", "redis"] < figures["wakupush_data_limit_bytes", "redis"] == 2**29
    finally:
        redis.config_set("maxmemory", 0)
    assert ("wakupush_data_limit_bytes", "redis") not in scrape(collector)


def test_figures_vanish_when_their_source_does(dsn, redis_server, app):
    send_entries(app, QUERY, entries(5, time.time()))
    own = PostgresSettings(dsn=make_conninfo(dsn, user=Role.EXPORTER))
    settings = Settings(redis=RedisSettings(url=redis_server.url), postgres=own)
    collector = BacklogCollector(settings)
    assert scrape(collector)["wakupush_queue_messages", "query"] == 5
    redis_server.kill()
    try:
        assert ("wakupush_queue_messages", "query") not in scrape(collector)
    finally:
        redis_server.start()
    wait_until(lambda: collector.check()["redis"], timeout=60, what="Redis answers again")
    assert {name for name, *_ in scrape(collector)} >= {"wakupush_queue_messages"}
