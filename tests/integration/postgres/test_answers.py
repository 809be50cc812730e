"""Answers keep their order, and are claimed once."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from support import plans
from wakupush.model.entries import SealedAnswer
from wakupush.postgres import answers


def test_answers_keep_their_order_and_are_claimed_once(dsn, connection):
    outbox = [
        SealedAnswer(pubsub_topic="shard", content_topic=str(number), payload=bytes([number]), trace_id="t")
        for number in range(50)
    ]
    ids = answers.add(connection, outbox, hold=0)
    assert connection.execute("SELECT content_topic FROM answers ORDER BY id").fetchall() == [
        (answer.content_topic,) for answer in outbox
    ]

    def claim(_):
        with psycopg.connect(dsn) as own:
            return [answer_id for answer_id, _, _ in answers.claim(own, {}, 10, most_bytes=10**6, hold=60)]

    with ThreadPoolExecutor(8) as threads:
        claimed = [answer_id for part in threads.map(claim, range(8)) for answer_id in part]
    assert sorted(claimed) == ids
    answers.remove(connection, ids[:49])
    assert answers.expire(connection, 60, 10) == 0
    assert answers.expire(connection, 0, 10) == 1


#: Answers of two shards that wait for ten minutes, a thousand in ten seconds; the last ones are left to their worker.
FILL = """
INSERT INTO answers (pubsub_topic, content_topic, payload, trace_id, created_at, publish_at)
SELECT 'shard' || n % 2, n::text, '\\x00', 't', now() - n * interval '10 ms',
    now() + CASE WHEN n > 3000 THEN - interval '1 s' ELSE interval '20 s' END
FROM generate_series(1, 60000) AS n
"""


def claim(connection, limits, limit, size=10**6):
    claimed = answers.claim(connection, limits, limit, most_bytes=size, hold=60)
    return [int(answer.content_topic) for _, answer, _ in claimed]


def test_the_newest_of_each_shard_are_claimed_first(connection):
    connection.execute(FILL)
    assert sorted(claim(connection, {"shard1": 3}, 2)) == [3001, 3002, 3003, 3004, 3005]
    assert sorted(claim(connection, {"shard1": 1}, 1)) == [3006, 3007]
    assert len(claim(connection, {}, 100, size=30)) == 30, "bytes are bounded, too"
    assert answers.expire(connection, 300, 10) == 20
    cursor = connection.execute(
        "SELECT count(*), min(content_topic::integer), max(content_topic::integer) FROM answers"
    )
    assert cursor.fetchone() == (59_980, 1, 59_980)


@pytest.fixture
def filled(connection):
    """A transaction, so that the answers get no older."""
    with connection.transaction(force_rollback=True):
        connection.execute(FILL)
        yield connection


def test_claimed_answers_have_their_age(filled):
    claimed = answers.claim(filled, {}, 1, most_bytes=10**6, hold=60)
    assert sorted((answer.content_topic, age) for _, answer, age in claimed) == [("3001", 30.01), ("3002", 30.02)]


def test_answers_that_waited_long_wait_longer(filled):
    ids = dict(filled.execute("SELECT content_topic, id FROM answers WHERE content_topic IN ('1', '40000')"))
    answers.postpone(filled, ids.values(), 1.0)
    waits = "SELECT content_topic, extract(epoch FROM publish_at - now()) FROM answers WHERE id = ANY (%s)"
    assert dict(filled.execute(waits, [list(ids.values())])) == {"1": 1, "40000": 100}


VALUES = {"shards": ["shard1"], "limits": [200], "limit": 200, "bytes": 10**6, "hold": 60.0, "keep": 590.0}


@pytest.mark.parametrize("name", ["claim", "expire"])
@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "as it was"])
def test_looks_at_the_outbox_read_no_more_than_they_want(filled, name, analyzed):
    if analyzed:
        filled.execute("ANALYZE answers")
    nodes = plans.executed(filled, answers._SQL[name], VALUES)
    reads = [node for node in nodes if node.get("Relation Name") == "answers" and node["Node Type"] != "ModifyTable"]
    assert {node["Node Type"] for node in reads} <= {"Index Scan", "Index Only Scan", "Bitmap Heap Scan"}
    rows = sum(node["Actual Loops"] * node["Actual Rows"] for node in reads)
    removed_rows = sum(node["Actual Loops"] * node.get("Rows Removed by Filter", 0) for node in reads)
    assert 0 < rows <= 3000
    assert removed_rows <= 3000, "those that are left to their workers"
