"""The sweep of topics that nobody uses any more holds registrations up only while it deletes, and never for long."""

import psycopg
import pytest

from support import plans
from wakupush.postgres import maintenance, query_topics
from wakupush.postgres.query_topics import _SQL
from wakupush.server.beat import retention
from wakupush.server.beat.retention import prune

#: Users with two topics each; every fourth has a registration, every fourth one that ended.
FILL = """
WITH users AS (SELECT n, sha512(int8send(n)) AS key_hash FROM generate_series(1, %(users)s) AS n), topics AS (
    INSERT INTO query_topics (key_hash, prefixed, topic)
    SELECT key_hash, prefixed, substring(sha256(key_hash || int4send(prefixed::integer)) FOR 4)
    FROM users, unnest(ARRAY[false, true]) AS prefixed
)
INSERT INTO registrations (key_hash, installation_hash, version, request_digest, registered)
SELECT key_hash, 'i', 1, '', n % 4 = 0 FROM users WHERE n % 2 = 0
"""


def fill(connection, users):
    connection.execute(FILL.replace("%(users)s", str(users)))
    connection.execute("ANALYZE query_topics, registrations")


@pytest.fixture
def registering(dsn):
    """A registration that has added its topics and is not committed."""
    with psycopg.connect(dsn) as connection:
        query_topics.add(connection, [b"r" * 64])
        yield connection


def test_search_waits_for_no_registration(server, registering):
    prune(server.context)
    assert registering.info.transaction_status.name == "INTRANS"


def test_sweep_gives_up_behind_a_long_registration(server, registering, connection, monkeypatch):
    fill(connection, 10)
    monkeypatch.setattr(maintenance, "LOCK_SECONDS", 0.1)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        prune(server.context)
    registering.rollback()
    prune(server.context)
    assert server.rows("SELECT count(*) FROM query_topics") == [(4,)]


def test_user_who_registers_again_keeps_the_topics(connection):
    fill(connection, 10)
    _, users = query_topics.unused(connection, b"", 100)
    connection.execute("UPDATE registrations SET registered = true WHERE NOT registered")
    with connection.transaction():
        assert len(query_topics.remove_unused(connection, users)) == 2 * 5
    assert connection.execute("SELECT count(*) FROM query_topics").fetchone() == (2 * 5,)


def test_sweep_deletes_at_most_a_thousand_at_once(server, connection, monkeypatch):
    fill(connection, 2000)
    monkeypatch.setattr(maintenance, "CHUNK_ROWS", 1600)
    sizes = []
    remove = query_topics.remove_unused
    monkeypatch.setattr(query_topics, "remove_unused", lambda *args: sizes.append(len(remove(*args))) or range(0))
    monkeypatch.setattr(retention.watched, "remove", lambda *_: None)
    prune(server.context)
    assert sum(sizes) == 2 * 1500
    assert max(sizes) <= 1000
    assert server.rows("SELECT count(*) FROM query_topics") == [(2 * 500,)]


def test_runs_that_see_a_part_come_to_all(server, connection, monkeypatch):
    fill(connection, 100)
    monkeypatch.setattr(maintenance, "CHUNK_ROWS", 10)
    monkeypatch.setattr(retention, "MOST_TOPIC_CHUNKS", 4)
    for _ in range(200):
        prune(server.context)
        if server.rows("SELECT count(*) FROM query_topics") == [(2 * 25,)]:
            break
    else:
        pytest.fail("a part is never looked at")


def explain(connection, name, types, values):
    """Return the nodes of a plan that does not know the values, as it ran."""
    sql = _SQL[name] % {"after": "$1", "most": "$2"} if name == "unused" else _SQL[name]
    sql = sql.replace("%(key_hashes)b", "$1")
    connection.execute(f"PREPARE it ({types}) AS {sql}")
    nodes = plans.executed(connection, f"EXECUTE it ({values})")
    connection.execute("DEALLOCATE it")
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan"]
    return nodes


@pytest.mark.parametrize("users", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_sweep_reads_only_its_part(connection, users, mode):
    fill(connection, users)
    connection.execute(f"SET plan_cache_mode = {mode}")
    nodes = explain(connection, "unused", "bytea, bigint", "'\\x80', 10000")
    reads = {
        node["Relation Name"]: node["Actual Rows"] * node["Actual Loops"] for node in nodes if "Relation Name" in node
    }
    assert reads == {"query_topics": 10_000, "registrations": pytest.approx(1250, rel=0.2)}

    _, unused = query_topics.unused(connection, b"", 1200)
    keys = ", ".join(f"'\\x{key.hex()}'::bytea" for key in unused[:400])
    nodes = explain(connection, "remove_unused", "bytea[]", f"ARRAY[{keys}]")
    rows = sum(node["Actual Rows"] * node["Actual Loops"] for node in nodes if node.get("Relation Name"))
    assert rows <= 6 * 400
