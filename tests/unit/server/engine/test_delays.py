"""Answers to what is not pushed wait as long as those to what is."""

import threading
import time
from dataclasses import replace

import pytest

from support.deciding import ALICE, ALLOW, NOW, RECEIVERS, TABLET, asking, installation, item, known, messages, receiver
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.platforms import Platform
from wakupush.protocol.request import Filtered
from wakupush.server.delivery.posting import Posting
from wakupush.server.engine.background import RECENT, Latencies, Later
from wakupush.server.engine.delays import delays
from wakupush.server.push.decide import decide

#: Seconds that Alice's phone and her tablet let wait.
WAITS = {Platform.IOS: 0.5, Platform.ANDROID: 0.75}


@pytest.fixture
def latencies():
    found = Latencies()
    for platform, seconds in WAITS.items():
        found.note([platform], seconds)
    return found


def held(outcomes, latencies, posted=(), within=1.5, now=NOW):
    return delays(outcomes, posted, latencies, within=within, now=now)


def decided(*items, **preferences):
    receivers = {
        installation(ALICE): receiver(**preferences),
        installation(ALICE, TABLET): receiver(Platform.ANDROID, **preferences),
    }
    return decide(messages(asking(*items), seen=NOW), known(receivers=receivers), ALLOW)


@pytest.mark.parametrize("preferences", [{"enabled": False}, {"muted_chat_list": {b"chat"}}, {}])
def test_filtered_answers_wait_as_long_as_pushed_ones(latencies, preferences):
    """Without preferences it is admitted, and known already: nothing new is posted."""
    assert held(decided(item(), **preferences), latencies) == [0.5]
    assert held(decided(item(device=TABLET), **preferences), latencies) == [0.75]
    assert held(decided(item(), item(device=TABLET), **preferences), latencies) == [0.75]


def test_what_is_posted_waits_for_its_post_alone(latencies):
    outcomes = decided(item(), item(device=TABLET))
    posted = [Posting(admission.delivery, admission.target) for admission in outcomes[0].admissions]
    assert held(outcomes, latencies, posted) == [0.0]
    assert held(outcomes, latencies, posted[:1]) == [0.75]


def test_what_is_refused_or_succeeded_before_waits_for_nothing(latencies):
    assert held(decided(item(access_token="wrong", message=b"1")), latencies) == [0.0]
    before = known(admitted={asking().message_id: RememberedRequest([True])}, receivers=RECEIVERS)
    assert held(decide(messages(asking(item())), before, ALLOW), latencies) == [0.0]


def test_an_answer_leaves_in_time_all_the_same(latencies):
    outcomes = decided(item(), enabled=False)
    assert [each.events[0].reason for each in outcomes] == [Filtered.DISABLED.value]
    assert held(outcomes, latencies, within=0.25) == [0.25]
    assert held(outcomes, latencies, within=0.75, now=NOW + 0.5) == [0.25]
    late = [replace(outcomes[0], entry=replace(outcomes[0].entry, seen=NOW - 9))]
    assert held(late, latencies)[0] <= 0


def test_waits_are_drawn_from_the_recent_ones_of_the_platform():
    drawn = []
    latencies = Latencies(lambda recent: drawn.append(list(recent)) or recent[0])
    assert 0 <= latencies.draw(Platform.IOS, 1.5) <= 1.5
    for number in range(RECENT + 5):
        latencies.note([Platform.IOS], float(number))
    latencies.note([Platform.ANDROID], 7.0)
    assert latencies.draw(Platform.IOS, 1.5) == 5.0
    assert latencies.draw(Platform.ANDROID, 1.5) == 7.0
    assert drawn[1:] == [[float(number) for number in range(5, RECENT + 5)], [7.0]]


def test_later_work_is_done_in_the_order_of_its_time():
    later, done, reached = Later(), [], threading.Event()
    begun = time.monotonic()
    later.do(0.2, lambda: done.append("last"))
    later.do(0.1, lambda: done.append("second"))
    later.do(0.0, lambda: done.append("first") or reached.set())
    assert reached.wait(60)
    assert done[0] == "first"
    later.do(0.0, lambda: 1 / 0)
    later.close()
    assert done == ["first", "second", "last"]
    assert time.monotonic() - begun >= 0.2  # each at its time
