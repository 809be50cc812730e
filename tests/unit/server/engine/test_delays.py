"""Answers to requests that are not pushed are held back as long as others."""

import threading
import time

import pytest
from structlog.testing import capture_logs

from support.deciding import ALICE, NOW, TABLET, WRONG_ITEM, Device, decide_requests, installation, item, push_request
from support.rows import ANDROID, IOS
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.platforms import Platform
from wakupush.protocol.request import Filtered
from wakupush.server.delivery.posting import Posting
from wakupush.server.engine import background
from wakupush.server.engine.background import RECENT, Latencies, Later
from wakupush.server.engine.delays import delays

#: Seconds for which answers waited for posts.
WAITS = {IOS: 0.5, ANDROID: 0.75}


@pytest.fixture
def latencies():
    latencies = Latencies()
    for platform, seconds in WAITS.items():
        latencies.note([platform], seconds)
    return latencies


def delays_of(outcomes, latencies, posted=(), within=1.5, now=NOW - 3):
    """Return the delays of answers; by default ingest sees the requests now."""
    return delays(outcomes, posted, latencies, within=within, now=now)


def decide_items(*items, **preferences):
    """Return the outcomes of one request for devices of these preferences."""
    devices = {
        installation(ALICE): Device(Platform.IOS, preferences),
        installation(ALICE, TABLET): Device(Platform.ANDROID, preferences),
    }
    return decide_requests(push_request(*items), devices=devices)


@pytest.mark.parametrize("preferences", [{"enabled": False}, {"muted_chat_list": {b"chat"}}, {}])
def test_filtered_answers_wait_like_pushed_ones(latencies, preferences):
    """Without preferences it is admitted, and a delivery of it exists: nothing new is posted."""
    assert delays_of(decide_items(item(), **preferences), latencies) == [0.5]
    assert delays_of(decide_items(item(device=TABLET), **preferences), latencies) == [0.75]
    assert delays_of(decide_items(item(), item(device=TABLET), **preferences), latencies) == [0.75]


def test_a_posted_item_waits_only_for_its_post(latencies):
    [outcome] = decide_items(item(), item(device=TABLET))
    posted = [Posting(admission.delivery, admission.target) for admission in outcome.effect.admissions]
    assert delays_of([outcome], latencies, posted) == [0.0]
    assert delays_of([outcome], latencies, posted[:1]) == [0.75]


def test_refused_and_repeated_items_do_not_wait(latencies):
    assert delays_of(decide_items(WRONG_ITEM), latencies) == [0.0]
    request = push_request(item())
    outcomes = decide_requests(request, admitted={request.message_id: RememberedRequest([True])})
    assert delays_of(outcomes, latencies) == [0.0]


def test_a_delayed_answer_leaves_in_time(latencies):
    [outcome] = decide_items(item(), enabled=False)
    assert [event.reason for event in outcome.events if event.reason] == [Filtered.DISABLED.value]
    assert delays_of([outcome], latencies, within=0.25) == [0.25]
    assert delays_of([outcome], latencies, within=0.75, now=NOW - 2.5) == [0.25]
    assert delays_of([outcome], latencies, now=NOW + 6)[0] <= 0


def test_waits_are_drawn_from_recent_ones():
    choices = []
    latencies = Latencies(lambda recent: choices.append(list(recent)) or recent[0])
    assert 0 <= latencies.draw(IOS, 1.5) <= 1.5
    for number in range(RECENT + 5):
        latencies.note([IOS], float(number))
    latencies.note([ANDROID], 7.0)
    assert latencies.draw(IOS, 1.5) == 5.0
    assert latencies.draw(ANDROID, 1.5) == 7.0
    assert choices[1:] == [[float(number) for number in range(5, RECENT + 5)], [7.0]]


def test_delayed_work_is_done_in_order():
    later, done, reached = Later(), [], threading.Event()
    start = time.monotonic()
    later.do(0.2, 1, done.extend, "c")
    later.do(0.1, 1, done.extend, "b")
    later.do(0.0, 1, lambda items: done.extend(items) or reached.set(), "a")
    assert reached.wait(60)
    assert done[0] == "a"
    later.do(0.0, 1, lambda _: 1 / 0, None)
    later.close()
    assert done == ["a", "b", "c"]
    assert time.monotonic() - start >= 0.2


@pytest.fixture
def hanging():
    """A thread whose work hangs until `go` is set, and the batches that it has done."""
    later, go, begun, batches = Later(), threading.Event(), threading.Event(), []

    def work(items):
        begun.set()
        go.wait(30)
        batches.append(items)

    later.do(0.0, 1, work, "first")
    assert begun.wait(30)
    yield later, work, go, batches
    go.set()
    later.close()


def test_what_became_due_is_done_together(hanging):
    later, work, go, batches = hanging
    for number in range(40):
        later.do(0.0, 1, work, number)
    go.set()
    later.close()
    assert batches == [["first"], list(range(40))]


def test_what_finds_no_room_is_dropped(hanging, monkeypatch):
    later, work, go, batches = hanging
    monkeypatch.setattr(background, "BYTES", 10 * (background.ITEM_BYTES + 100))
    with capture_logs() as logs:
        for number in range(100):
            later.do(0.0, 100, work, number)
    assert [line["event"] for line in logs] == ["later_full"] * 3
    go.set()
    later.close()
    assert batches == [["first"], list(range(10))]


def test_closing_drops_what_is_due_too_late(hanging, monkeypatch):
    later, work, go, batches = hanging
    monkeypatch.setattr(background, "CLOSE_SECONDS", 0.2)
    later.do(0.05, 1, work, "soon")
    later.do(600, 1, work, "late")
    go.set()
    begun = time.monotonic()
    later.close()
    assert time.monotonic() - begun < 30
    assert batches == [["first"], ["soon"]]
