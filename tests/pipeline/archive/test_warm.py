"""The keys of query topics are derived ahead of queries, and stored."""

import secrets

import pytest
from psycopg.conninfo import make_conninfo

from wakupush.model.roles import Role
from wakupush.pipeline.archive import warm
from wakupush.postgres import query_topics
from wakupush.protocol import topics


def missing(connection):
    return query_topics.count_without_key(connection)


def test_missing_keys_are_derived(spark, make_settings, dsn, connection, monkeypatch):
    users = [secrets.token_bytes(64) for _ in range(7)]
    query_topics.add(connection, users)
    query_topics.set_keys(connection, {users[0]: b"k" * 32}, prefixed=False)
    monkeypatch.setattr(warm, "KEYS_PER_CORE", 3)
    steps = []
    assert warm.run(spark, make_settings(make_conninfo(dsn, user=Role.REBUILD)), lambda *each: steps.append(each)) == 13
    assert steps[0] == (0, 13)
    assert steps[-1] == (13, 13)
    assert len(steps) == 1 + 2 + 3  # six users of the first topic, seven of the second, in chunks of three
    assert missing(connection) == 0
    for user, prefixed, key in connection.execute("SELECT key_hash, prefixed, symmetric_key FROM query_topics"):
        expected = topics.symmetric_key(topics.query_topics(user)[prefixed])
        assert key == (b"k" * 32 if (user, prefixed) == (users[0], False) else expected)
    assert warm.run(spark, make_settings(make_conninfo(dsn, user=Role.REBUILD)), lambda *_: None) == 0


def test_what_is_stored_stays(spark, make_settings, dsn, connection, monkeypatch):
    query_topics.add(connection, [secrets.token_bytes(64) for _ in range(4)])
    monkeypatch.setattr(warm, "KEYS_PER_CORE", 2)

    def die(count, _):
        if count == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm.run(spark, make_settings(make_conninfo(dsn, user=Role.REBUILD)), die)
    assert missing(connection) == 4
    assert warm.run(spark, make_settings(make_conninfo(dsn, user=Role.REBUILD)), lambda *_: None) == 4
