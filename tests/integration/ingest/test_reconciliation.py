"""Reconciliation on a real Postgres, a real Redis and development nodes: what is missing, and where it begins."""

import os
import time
from dataclasses import replace

import httpx2
import pytest
from structlog.testing import capture_logs

from support.reconciling import FOREIGN, SHARD, after_each_page, ago, hashes, looked_back, turn, walk_from
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import ledger, reconciliation
from wakupush.postgres.reconciliation import Track
from wakupush.protocol import topics
from wakupush.protocol.keys import PrivateKey

# --- the subtraction ---


def test_what_is_missing(connection):
    entries = [
        Entry(SHARD, os.urandom(32), 0.0, WakuMessage(payload=b"x", content_topic="", timestamp=at)) for at in range(6)
    ]
    new, handled_entry, quarantined, in_work, lost, absurd = entries
    absurd = replace(absurd, message=replace(absurd.message, timestamp=-(2**63)))
    with connection.transaction():
        ledger.add(connection, [handled_entry, absurd])
        ledger.quarantine(connection, DISPATCH, quarantined, reason="X", attempts=3, owner=None)
        ledger.count_attempt(connection, in_work)
        ledger.count_attempt(connection, lost)
        connection.execute(
            "UPDATE message_attempts SET updated_at = now() - interval '1 hour' WHERE message_hash = %s", [lost.hash]
        )
    missing_messages = reconciliation.find_missing(connection, [entry.hash for entry in [*entries, new]])
    assert missing_messages == {new.hash: False, in_work.hash: True, lost.hash: False}
    assert reconciliation.find_missing(connection, []) == {}


def test_the_subtraction_asks_the_indexes(connection):
    sql = reconciliation._SQL["missing"]
    with connection.transaction():
        connection.execute("SET LOCAL enable_seqscan = off")
        plan = connection.execute(f"EXPLAIN {sql}", {"hashes": [os.urandom(32)] * 100, "in_work": 1}).fetchall()
    assert "Seq Scan on ledger" not in str(plan)


def test_watermark_only_moves_forward(connection):
    track = Track("node:1", SHARD, "registration")
    assert reconciliation.watermark(connection, track) is None
    assert reconciliation.advance(connection, track, 100, most=100) == 100
    assert reconciliation.advance(connection, track, 50, most=100) == 100
    assert reconciliation.advance(connection, replace(track, pubsub_topic="other"), 7, most=100) == 7
    assert reconciliation.watermark(connection, track) == 100
    assert reconciliation.advance(connection, track, 60, most=99) == 60
    assert reconciliation.watermark(connection, track) == 60


# --- walks ---


def test_what_is_missing_is_enqueued_and_claimed(bench, recent_walks):
    _, registrations, requests = recent_walks
    handled_entry, lost, push = bench.send(ago=2)[0], bench.send(ago=5)[0], bench.send(bench.partitioned)[0]
    bench.send(FOREIGN)
    bench.handle([handled_entry])
    tally = walk_from(registrations, 60)
    assert (tally.examined, tally.missing, tally.enqueued, tally.malformed) == (2, 1, 1, 0)
    assert (walk_from(requests, 60).examined, bench.queued_hashes()) == (1, {"registration": 1, "dispatch": 1})
    assert bench.claimed_hashes() == {lost.hash, push.hash}
    again = walk_from(registrations, 60)
    assert (again.missing, again.enqueued) == (1, 0)  # somebody has it, and it is not done yet


def test_old_and_new_keys_share_a_walk_and_its_watermark(bench):
    bench.previous = (PrivateKey.generate().public_key,)
    personal, _ = topics.server_content_topics(*bench.previous)
    process, *walks = bench.walkers()
    assert [walk.walker.kind.name for walk in walks] == ["query", "registration", "dispatch"]
    entries = bench.send() + bench.send(personal)
    assert looked_back(walks[1]).enqueued == 2
    assert hashes(entries) <= bench.claimed_hashes()
    process.close()


def test_watermark_passes_only_finished_messages(bench, recent_walks):
    _, own, _ = recent_walks
    before = time.time_ns()
    own.walker.settle(SHARD, ago(10), None)
    assert looked_back(own) is not None
    assert bench.watermark(own) >= before
    [lost] = bench.send(ago=-0.2)
    time.sleep(0.3)  # its time has come
    looked_back(own)
    assert bench.watermark(own) == lost.message.timestamp - 1
    bench.handle([lost])
    looked_back(own)
    assert bench.watermark(own) > lost.message.timestamp


def test_each_look_overlaps_the_last_one(recent_walks):
    """So that a short pause does not read all of the overlap each time."""
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(30), None)
    assert turn(own).since == pytest.approx(ago(30 + 120), abs=2)
    assert turn(own).since == pytest.approx(ago(5), abs=2)
    assert turn(own).since == pytest.approx(ago(5), abs=2)
    own._back_due.clear()
    assert turn(own).since == pytest.approx(ago(120), abs=3)
    own._last_ends[SHARD] = ago(5000)  # it failed for long
    assert turn(own).since == pytest.approx(ago(120), abs=3)


def test_future_watermark_is_ignored(bench, whole):
    thorough_, own = whole
    own.walker.settle(SHARD, ago(600), None)
    ahead = time.time_ns() + 3600 * 10**9
    reconciliation.advance(bench.connection, own.walker.track(SHARD), ahead, most=ahead)
    bench.send(ago=400)
    assert looked_back(own).missing == 0
    while turn(thorough_):
        pass
    assert len(bench.claimed_hashes()) == 1
    assert bench.watermark(own) < time.time_ns()


def test_interrupted_walk_resumes_at_the_watermark(bench, recent_walks, node_url, monkeypatch):
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(1), None)
    before = bench.watermark(own)
    entries = bench.send(count=250, ago=0)

    def fault(number):
        if number == 1:
            fault = {"path": "/store", "kind": "status", "status": 500, "times": 1}
            httpx2.post(f"{node_url}/dev/faults", json=fault)

    after_each_page(own, monkeypatch, fault)
    with capture_logs() as logs:
        assert looked_back(own) is None
    warnings = [log for log in logs if log["log_level"] == "warning"]
    assert [(log["event"], log["error"]) for log in warnings] == [("walk_failed", "NodeUnreachable")]
    assert bench.watermark(own) == before
    first_page = len(bench.claimed_hashes())
    assert first_page in {16, 100}  # of messages or, on a nwaku, of hashes
    httpx2.delete(f"{node_url}/dev/faults")
    tally = looked_back(own)
    assert (tally.examined, tally.enqueued) == (250, 250 - first_page)
    assert bench.claimed_hashes() == hashes(entries)


def test_a_wiped_store_holds_up_nothing(bench, recent_walks, node_url, monkeypatch):
    """Its cursors mean nothing any more. What it had and nobody handled is lost; what comes later is not."""
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(1), None)
    before = bench.watermark(own)
    bench.send(count=250, ago=0)

    def wipe(number):
        if number == 1:
            httpx2.delete(f"{node_url}/dev/archive").raise_for_status()

    after_each_page(own, monkeypatch, wipe)
    with capture_logs() as logs:
        assert looked_back(own) is None
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["walk_failed"]
    first_page = bench.claimed_hashes()
    assert len(first_page) in {16, 100}
    assert bench.watermark(own) == before
    later = bench.send(count=3, ago=-0.1)
    time.sleep(0.2)
    tally = looked_back(own)
    assert (tally.examined, tally.enqueued) == (3, 3)
    assert bench.claimed_hashes() == first_page | hashes(later)
    bench.handle(later)
    looked_back(own)
    assert bench.watermark(own) > later[-1].message.timestamp


def test_the_page_at_hand_is_finished_before_the_end(bench, recent_walks, monkeypatch):
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(2), None)
    before = bench.watermark(own)
    bench.send(count=150, ago=0)
    after_each_page(own, monkeypatch, lambda _: bench.stop.set())
    assert looked_back(own) is None
    assert len(bench.claimed_hashes()) in {16, 100}
    assert bench.watermark(own) == before
