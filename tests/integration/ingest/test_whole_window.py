"""The walk over the whole window, in slices, beside looks for recent messages."""

import math
import time
from dataclasses import replace
from threading import Event, Thread

import pytest
from structlog.testing import capture_logs

from support.reconciling import SHARD, WINDOW, ago, hashes, looked_back, turn
from wakupush.devnet.processes import wait_until
from wakupush.ingest.reconcile import thorough, walk
from wakupush.ingest.reconcile.thorough import Thorough
from wakupush.redis import watched


def test_late_messages_are_retried_until_handled(bench, whole):
    thorough_, own = whole
    own.walker.settle(SHARD, ago(1), None)
    thorough_._progress[SHARD].whole_due = time.time() + thorough.FULL_SECONDS
    [late] = bench.send(ago=4000)  # its sender's clock was behind
    assert looked_back(own).missing == 0
    assert not turn(thorough_)
    thorough_._progress[SHARD].whole_due = 0.0
    while turn(thorough_):
        pass
    assert bench.claimed_hashes() == {late.hash}
    bench.redis.flushall()  # and lost again
    watched.mark_complete(bench.redis, watched.begin_filling(bench.redis))
    assert not turn(thorough_)
    progress = thorough_._progress[SHARD]
    assert progress.missing_since < late.seen
    assert progress.missing_due > time.time() + 100  # when the claim is over
    progress.missing_due = 0.0
    while turn(thorough_):
        pass
    assert bench.claimed_hashes() == {late.hash}


def test_watermark_follows_the_slices_of_a_window(bench, whole):
    thorough_, own = whole
    entries = bench.send(ago=5500, count=2) + bench.send(ago=3000) + bench.send(ago=1)
    bench.handle(entries[:2])
    assert looked_back(own).examined == 1
    assert bench.watermark(own) is None  # there is all that lies before
    at = []
    while turn(thorough_):
        at.append(bench.watermark(own))
    assert at == sorted(at)
    assert len(set(at)) > 5
    assert at[-1] == entries[2].message.timestamp - 1
    assert bench.claimed_hashes() == hashes(entries[2:])
    bench.handle(entries)
    thorough_._progress[SHARD].catch_up_due = -math.inf
    while turn(thorough_):
        pass
    looked_back(own)
    assert bench.watermark(own) > entries[3].message.timestamp


def test_thorough_walk_survives_restarts(whole):
    thorough_, own = whole
    own.walker.settle(SHARD, ago(1), None)
    for _ in range(5):
        assert turn(thorough_)
    at = thorough_._progress[SHARD].whole.at
    assert at == pytest.approx(ago(WINDOW - 5 * 300), abs=60)
    second = Thorough(walker=thorough_.walker, shards=(SHARD,), settings=thorough_.settings)
    assert turn(second)
    assert second._progress[SHARD].whole.at == pytest.approx(at + 300, abs=1)
    while turn(second):
        pass
    assert not turn(second)
    assert second._progress[SHARD].whole_due == pytest.approx(time.time() + 3600, abs=60)
    assert turn(Thorough(walker=thorough_.walker, shards=(SHARD,), settings=thorough_.settings))  # and a third anew


@pytest.mark.parametrize("behind", [True, False])
def test_what_the_ledger_may_have_forgotten_is_left_out(bench, whole, monkeypatch, behind):
    """A walk that was slower than the clock, or suspended for days, handled old messages again."""
    thorough_, own = whole
    if not behind:
        own.walker.settle(SHARD, ago(1), None)
    old, late = bench.send(ago=WINDOW - 400), bench.send(ago=1000)
    assert turn(thorough_)
    progress = thorough_._progress[SHARD]
    assert (progress.catch_up is not None) == behind
    now = time.time
    monkeypatch.setattr(thorough.time, "time", lambda: now() + 3000)
    while turn(thorough_):
        pass
    assert bench.claimed_hashes() == hashes(late)
    assert not hashes(old) & bench.claimed_hashes()


def test_long_stretches_are_split(bench, whole, monkeypatch):
    """It failed each time, and what came after it was never reached."""
    thorough_, own = whole
    monkeypatch.setattr(thorough, "SLICE_PAGES", 2)
    own.walker.settle(SHARD, ago(1), None)
    entries = [each for second in range(10) for each in bench.send(ago=1000 + 10 * second, count=90)]
    entries += bench.send(ago=900)
    failed = []
    monkeypatch.setattr(walk.log, "warning", lambda *_, **facts: failed.append(facts), raising=False)
    while turn(thorough_):
        pass
    assert bench.claimed_hashes() == hashes(entries)
    assert not failed


def test_endless_pages_hide_no_later_messages(bench, whole, monkeypatch):
    """A Store that makes up messages of a second holds up that second."""
    thorough_, own = whole
    monkeypatch.setattr("wakupush.waku.store.MOST_PAGES", 1)
    own.walker.settle(SHARD, ago(1), None)
    bench.send(ago=1000.5, count=250)
    after = bench.send(ago=900)
    with capture_logs() as logs:
        while turn(thorough_):
            pass
    assert {log["event"] for log in logs if log["log_level"] == "error"} == {"slice_skipped"}
    assert hashes(after) <= bench.claimed_hashes()


def test_recent_messages_are_found_beside_a_whole_walk(bench, whole):
    """A flood, or a day at 200 messages a second, is walked by a thread of its own."""
    thorough_, own = whole
    own.walker.settle(SHARD, ago(1), None)
    pages = []
    pausing = Event()

    def hold(*_, **__):
        pages.append(1)
        pausing.wait()
        raise walk.Stopped

    thorough_.walker.store.walk = hold
    thread = Thread(target=turn, args=[thorough_])
    thread.start()
    wait_until(lambda: pages, timeout=60, what="the walk over the window is in the middle of a page")
    entries = bench.send(ago=0, count=3)
    assert turn(own).enqueued == 3
    assert bench.claimed_hashes() == hashes(entries)
    pausing.set()
    thread.join()


@pytest.mark.parametrize("seconds", [45, pytest.param(120, marks=pytest.mark.long)])
def test_walks_keep_up_with_200_messages_a_second(bench, whole, monkeypatch, seconds):
    """A look reads a few seconds, whatever the overlap; the window is walked beside it, and what is lost is found."""
    thorough_, own = whole
    rate = 200
    stream = bench.send(bench.personal, ago=0.0, count=rate * seconds, apart=1 / rate)
    lost = [stream[100], stream[-300], stream[-2]]
    bench.handle([entry for entry in stream if entry not in lost])
    own.walker.settle(SHARD, ago(1), None)
    own._back_due[SHARD] = time.time() + own.settings.overlap / 2
    own._last_ends[SHARD] = stream[-1].seen - own.settings.pause
    tally = turn(own)
    assert tally.examined <= rate * (own.settings.pause + 5 + 1)
    assert bench.claimed_hashes() == hashes(lost[1:])
    progress = thorough_._progress[SHARD]
    progress.whole_due, progress.catch_up_due = 0.0, time.time() + 15
    monkeypatch.setattr(thorough, "SLICE_PAGES", 25)
    thorough_.settings = thorough_.settings.model_copy(update={"overlap": 30.0})
    thorough_.walker.kind = replace(thorough_.walker.kind, window=300.0)
    assert turn(thorough_)
    course = thorough_._progress[SHARD].whole
    while turn(thorough_):
        pass
    assert course.tally.examined >= rate * (seconds - 31)
    assert hashes(lost) == bench.claimed_hashes()


def test_clock_set_back_delays_no_walk(bench, whole, monkeypatch):
    thorough_, own = whole
    now = time.time
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now() + 5000)
        own.turn(SHARD)
        while turn(thorough_):
            pass
    entries = bench.send(ago=20) + bench.send(ago=4000)
    own.turn(SHARD)
    assert bench.claimed_hashes() == hashes(entries[:1])
    while turn(thorough_):
        pass
    assert bench.claimed_hashes() == hashes(entries)
