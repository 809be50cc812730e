"""Answers that piled up while no node took any: the newest leave first, and as many at once as the nodes take."""

import httpx2
import pytest

from support.served import SHARD
from wakupush.server.beat import answers
from wakupush.server.beat.answers import publish_overdue

FILL = """
INSERT INTO answers (pubsub_topic, content_topic, payload, trace_id, created_at, publish_at)
SELECT %s, '/waku/1/0x' || lpad(to_hex(n), 8, '0') || '/rfc26', int4send(n), 't', now() - n * interval '10 ms', now()
FROM generate_series(1, %s) AS n RETURNING 1
"""


def published_numbers(server):
    """Return the numbers of the answers that were published since the last call, the smallest being the newest."""
    payloads = [each.message.payload for each in server.observer.messages()]
    return {int.from_bytes(payload, "big") for payload in payloads if len(payload) == 4}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Take a slow machine for a quick one."""
    monkeypatch.setattr(answers, "QUICK_SECONDS", 60.0)


def test_fresh_answers_do_not_wait_behind_old_ones(server):
    server.rows(FILL, SHARD, 1000)
    assert publish_overdue(server.context) == 200
    assert published_numbers(server) == set(range(1, 201))


def test_more_leave_at_once_while_nodes_take_them(server, monkeypatch):
    monkeypatch.setattr(answers, "MOST_LIMIT", 500)
    server.rows(FILL, SHARD, 1800)
    assert [publish_overdue(server.context) for _ in range(6)] == [200, 400, 500, 500, 200, 0]
    assert published_numbers(server) == set(range(1, 1801))


def test_slow_nodes_get_no_more_at_once(server, monkeypatch):
    monkeypatch.setattr(answers, "QUICK_SECONDS", 0.0)
    server.rows(FILL, SHARD, 500)
    assert [publish_overdue(server.context) for _ in range(3)] == [200, 200, 100]


def test_nodes_that_become_slow_get_fewer(server, monkeypatch):
    """A run of minutes looks stuck: beat was restarted, and all its answers left again."""
    monkeypatch.setattr(answers, "SLOW_SECONDS", 0.0)
    server.rows(FILL, SHARD, 500)
    assert [publish_overdue(server.context) for _ in range(3)] == [200, 50, 12]


def test_fewer_are_tried_while_no_node_takes_them(server, node):
    server.rows(FILL, SHARD, 1000)
    httpx2.post(f"{node}/dev/faults", json={"kind": "status", "status": 503, "method": "POST"}).raise_for_status()
    try:
        assert [publish_overdue(server.context) for _ in range(4)] == [200, 50, 12, 10]
    finally:
        httpx2.delete(f"{node}/dev/faults").raise_for_status()
    assert [publish_overdue(server.context) for _ in range(3)] == [10, 20, 40]
