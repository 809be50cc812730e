"""Several instances of gorush, on loopback: one that is down or hangs costs no delivery its attempt."""

import json
import socket
import time

import pytest

from support.answering import hang, serving
from wakupush.devnet.processes import wait_until
from wakupush.gorush import client, instances
from wakupush.gorush.instances import Instances, open_gorush
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform
from wakupush.runtime.settings import GorushSettings

TAKEN = (200, json.dumps({"success": "ok", "counts": 1, "logs": []}).encode())


def notification(number=0):
    return Notification(notif_id=f"id-{number}", token="token", platform=Platform.ANDROID, message="text", data={})


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(instances, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(client, "HEALTH_TIMEOUT", 0.3)


@pytest.fixture
def two():
    with serving(TAKEN) as one, serving(TAKEN) as other:
        yield one, other


def opened(*urls, tries=2, timeout=5.0, connect_timeout=1.0):
    names = {f"gorush-{number}": url for number, url in enumerate(urls)}
    return Instances(names, connect_timeout=connect_timeout, timeout=timeout, tries=tries)


def posts(server):
    return sum(request[1] == "/api/push" for request in server.requests)


def nowhere():
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        return f"http://127.0.0.1:{reserved.getsockname()[1]}"


def test_posts_go_to_all_in_turn(two):
    gorush = opened(*(server.url for server in two))
    for number in range(10):
        assert gorush.post([notification(number)]).outcomes == [None]
    gorush.close()
    assert [posts(server) for server in two] == [5, 5]


def test_one_alone_is_not_looked_after():
    gorush = open_gorush(GorushSettings(url="http://127.0.0.1:1"))
    assert isinstance(gorush, client.Gorush)
    gorush.close()


@pytest.mark.parametrize("answer", [None, (429, b""), (404, b"")], ids=["down", "429", "no gorush"])
def test_falls_back_to_second_gorush_in_one_attempt(two, answer):
    one, other = two
    if answer is not None:
        one.answers = [answer]
    gorush = opened(nowhere() if answer is None else one.url, other.url)
    outcomes = {gorush.post([notification(number)]).outcomes[0] for number in range(20)}
    gorush.close()
    assert outcomes == {None}
    assert posts(other) == 20


def test_late_refusal_is_not_tried_elsewhere(two):
    one, other = two

    def refuse_late(_):
        time.sleep(0.3)  # longer than it takes to connect to both
        return 429, b""

    one.answers = [refuse_late]
    gorush = opened(one.url, other.url, connect_timeout=0.1)
    assert gorush.post([notification()]).outcomes == [Failure.GORUSH_THROTTLED]
    gorush.close()
    assert posts(other) == 0


def test_hanging_instance_gets_no_more_posts(two):
    one, other = two
    gorush = opened(one.url, other.url, timeout=30.0)
    gorush.post([notification()])
    one.answers = [hang]
    wait_until(lambda: not gorush._listen["gorush-0"], timeout=10, what="it is found out")
    before = posts(one)
    assert {gorush.post([notification(number)]).outcomes[0] for number in range(20)} == {None}
    assert posts(one) == before
    one.answers = [TAKEN]
    wait_until(lambda: gorush._listen["gorush-0"], timeout=10, what="it listens again")
    gorush.post([notification()])
    gorush.post([notification()])
    gorush.close()
    assert posts(one) > before


def test_uncertain_post_is_not_repeated_elsewhere(two):
    one, other = two
    one.answers = [b""]  # it takes a post, and cuts the connection
    gorush = opened(one.url, other.url)
    gorush._watch = lambda: None  # it would find out that nothing listens there
    assert gorush.post([notification()]).outcomes == [Failure.GORUSH_TIMED_OUT]
    gorush.close()
    assert posts(other) == 0


def test_while_none_listens_the_post_fails_as_with_one():
    gorush = opened(nowhere(), nowhere(), nowhere())
    assert gorush.post([notification()]).outcomes == [Failure.GORUSH_UNREACHABLE]
    gorush.close()
