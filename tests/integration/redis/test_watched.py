"""Watched topics in a real Redis: exact, small, and complete after a loss."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from structlog.testing import capture_logs

from support.served import count_watched
from wakupush.postgres import query_topics
from wakupush.redis import watched
from wakupush.server.beat.queries import fill_watched_topics

#: Topics that share their buckets and whose halves look like each other.
TOPICS = st.lists(st.binary(min_size=4, max_size=4).map(lambda some: bytes(byte % 3 for byte in some)), max_size=30)


def of_user(number):
    return number.to_bytes(64, "big")


def register(server, *numbers):
    """Do what a registration worker of ours does; return the topics."""
    with server.context.pool.connection() as connection:
        server.rows(
            "INSERT INTO registrations (key_hash, installation_hash, version, request_digest, registered)"
            " SELECT key, '', 1, '', true FROM unnest(%s::bytea[]) AS key ON CONFLICT DO NOTHING RETURNING 1",
            [of_user(number) for number in numbers],
        )
        topics = query_topics.add(connection, [of_user(number) for number in numbers])
        watched.add(server.context.redis, topics)
    return topics


@given(st.lists(st.tuples(st.booleans(), TOPICS)), TOPICS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
def test_packed_topics_match_additions_and_removals(redis, changes, polled_topics):
    redis.flushall()
    expected = set()
    for adds, topics in changes:
        (watched.add if adds else watched.remove)(redis, topics)
        expected = expected | set(topics) if adds else expected - set(topics)
    assert watched.among(redis, polled_topics) == expected & set(polled_topics)
    everything = [bytes((a, b, c, d)) for a in range(3) for b in range(3) for c in range(3) for d in range(3)]
    assert watched.among(redis, everything) == expected
    assert sum(map(len, redis.hvals(watched.KEY))) == 2 * len(expected)


def test_watched_topic_takes_two_bytes(redis):
    random = Random(15)
    prefixes = [random.randbytes(2) for _ in range(64)]
    topics = sorted({prefix + random.randbytes(2) for prefix in prefixes for _ in range(3000)})
    parts = [topics[start : start + 1000] for start in range(0, len(topics), 1000)]
    for part in parts:
        watched.add(redis, part)
    # Of the key alone: since Redis 7 the memory in use has the scripts' own garbage in it.
    assert redis.memory_usage(watched.KEY, samples=0) < 3 * len(topics)
    assert all(watched.among(redis, part) == set(part) for part in parts)


def test_a_whole_poll_is_asked_for_with_one_round_trip(redis, monkeypatch):
    topics = [number.to_bytes(4, "big") for number in range(0, 2**32, 2**23)]
    watched.add(redis, topics[::2])
    watched.among(redis, topics)  # the script is there from now on
    commands = []
    execute = Redis.execute_command
    monkeypatch.setattr(
        Redis, "execute_command", lambda *args, **named: commands.append(args[1]) or execute(*args, **named)
    )
    assert watched.among(redis, topics) == set(topics[::2])
    assert commands == ["EVALSHA"]


def test_topics_are_read_in_order_without_a_sort(open_server):
    server = open_server()
    register(server, *range(2000))
    with server.context.pool.connection() as connection:
        all_topics = [topic for topics in query_topics.every_topic(connection) for topic in topics]
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE query_topics")
        plan = connection.execute("EXPLAIN " + query_topics._SQL["all"]).fetchall()
    assert all_topics == sorted(all_topics)
    assert len(set(all_topics)) == len(all_topics) == 4000
    assert not any("Sort" in line or "Hash" in line for (line,) in plan), plan


@pytest.fixture
def failed_over(open_server):
    """A server with an old topic and a new one; its Redis kept the old one and was the replica of another."""
    server = open_server()
    redis = server.context.redis
    old = register(server, 1)
    server.rows("UPDATE query_topics SET added_at = now() - interval '1 hour' RETURNING 1")
    fill_watched_topics(server.context)  # all are put there
    assert not fill_watched_topics(server.context)  # and were seen to be complete
    new = register(server, 2)
    watched.remove(redis, sorted(new))  # the write that was not replicated
    redis.set(watched.MARKER, b"0" * 40 + b" " + redis.get(watched.LIFE))
    return server, old, new


def test_failover_refills_only_recent_topics(failed_over):
    server, old, new = failed_over
    redis = server.context.redis
    assert not watched.is_complete(redis)
    watched.remove(redis, sorted(old))  # so that it shows whether they are written again
    with capture_logs() as logs:
        assert fill_watched_topics(server.context)
    assert watched.among(redis, sorted(old | new)) == new
    assert [log["topics"] for log in logs if log["event"] == "watched_topics_filled"] == [len(new)]
    assert watched.is_complete(redis)


@pytest.mark.parametrize("lost", [watched.LIFE, watched.MARKER, watched.SEEN_AT])
def test_redis_of_unknown_age_is_filled_completely(failed_over, lost):
    server, old, new = failed_over
    redis = server.context.redis
    redis.delete(lost)
    watched.remove(redis, sorted(old))
    assert fill_watched_topics(server.context)
    assert watched.among(redis, sorted(old | new)) == old | new


def test_a_restored_older_copy_is_filled_up(failed_over):
    server, old, new = failed_over
    redis = server.context.redis
    watched.remove(redis, sorted(old))
    watched.note_seen(redis, float(redis.get(watched.SEEN_AT)) - 7200)
    assert fill_watched_topics(server.context)
    assert watched.among(redis, sorted(old | new)) == old | new


def test_the_last_topics_are_found_without_reading_all(open_server):
    server = open_server()
    register(server, *range(5000))
    server.rows("UPDATE query_topics SET added_at = now() - interval '1 hour' RETURNING 1")
    with server.context.pool.connection() as connection:
        connection.execute("ANALYZE query_topics")
        connection.execute("SET LOCAL enable_seqscan = off")  # the table has a few pages only
        plan = connection.execute("EXPLAIN " + query_topics._SQL["since"], {"since": 2e9}).fetchall()
    assert any("query_topics_added_at" in line for (line,) in plan), plan


def test_redis_is_wiped_while_the_topics_are_filled(server, client, monkeypatch):
    server.register(client)
    redis = server.context.redis
    redis.flushall()
    add = watched.add
    with monkeypatch.context() as patch:
        patch.setattr(watched, "add", lambda *args, **named: add(*args, **named) or redis.flushall())
        assert fill_watched_topics(server.context)
    assert fill_watched_topics(server.context)
    assert count_watched(redis) == 2
    assert not fill_watched_topics(server.context)
