"""What becomes of a canary's push, and what it answers to workers that post."""

import asyncio
import json
from email.message import Message
from http import HTTPStatus
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakupush.canary import canary
from wakupush.canary.arrivals import Arrivals
from wakupush.canary.canary import Canary, Outcome, push
from wakupush.client import NodeError, OwnPush, Result, Status
from wakupush.gorush.outcomes import read_answer
from wakupush.gorush.profiles import load_profiles
from wakupush.model.failures import Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.operate.samples import sample, target
from wakupush.runtime.http_server import Request
from wakupush.runtime.settings import Settings

TOKEN = "a" * 64


def post(*tokens, topic="wakupush.canary"):
    topics = {"topic": topic} if topic else {}
    notifications = [
        {"notif_id": f"n{number}", "tokens": [token], "platform": 1, **topics} for number, token in enumerate(tokens)
    ]
    return json.dumps({"notifications": notifications}).encode()


def answer(arrivals, body):
    return arrivals.answer(Request("POST", "/api/push", Message(), lambda most: body[:most]))


class Client:
    """A client whose server answers as it is told."""

    def __init__(self, own, *, status=Status.REGISTERED, arrivals=None):
        self._own, self._arrivals, self.tries = own, arrivals, 0
        self.registration = SimpleNamespace(enrolments=[SimpleNamespace(status=status)])

    def try_again(self):
        self.tries += 1

    async def notify_self(self):
        if self._own is None:
            raise NodeError("down")
        if self._arrivals is not None:
            await asyncio.to_thread(answer, self._arrivals, post(TOKEN))
        return self._own


def outcome_of(own, *, arrives=False, is_real=False, **options):
    async def run():
        arrivals = Arrivals(asyncio.get_running_loop())
        with arrivals.accepting(TOKEN) as arrival:
            client = Client(own, arrivals=arrivals if arrives else None, **options)
            one = Canary(node="a", shard="/waku/2/rs/16/32", client=client, arrival=None if is_real else arrival)
            arrival.set()  # by the push before
            return await push(one)

    return asyncio.run(run())


ACCEPTED = OwnPush(query_seconds=0.1, result=Result.ACCEPTED, request_seconds=0.4)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(canary, "ARRIVAL_SECONDS", 0.2)


@pytest.mark.parametrize(
    ("own", "options", "outcome"),
    [
        (ACCEPTED, {"arrives": True}, Outcome.ARRIVED),
        (ACCEPTED, {}, Outcome.POST),
        (ACCEPTED, {"is_real": True}, Outcome.ARRIVED),
        (None, {}, Outcome.NODE),
        (ACCEPTED, {"status": Status.REFUSED}, Outcome.REGISTRATION),
        (OwnPush(query_seconds=None, result=None, request_seconds=None), {}, Outcome.QUERY),
        (OwnPush(query_seconds=0.1, result=Result.FAILED, request_seconds=5.0), {}, Outcome.REQUEST),
        (OwnPush(query_seconds=0.1, result=Result.WRONG_TOKEN, request_seconds=0.4), {}, Outcome.REQUEST),
    ],
)
def test_a_push_that_is_lost_names_the_part(own, options, outcome):
    assert outcome_of(own, **options) is outcome


def test_pushes_to_devices_of_strangers_fail():
    async def outcomes():
        arrivals = Arrivals(asyncio.get_running_loop())
        with arrivals.accepting(TOKEN):
            notifications = [notification(TOKEN, 1), notification("b" * 64, 2), notification(TOKEN, 3)]
            reply = answer(arrivals, json.dumps({"notifications": [one.to_json() for one in notifications]}).encode())
        return read_answer(notifications, reply.status, reply.body)

    assert asyncio.run(outcomes()) == [None, Failure.TOKEN_UNREGISTERED, None]


def notification(token, number):
    device = target(Platform.IOS, token, "wakupush.canary")
    return sample(Settings(), load_profiles(Settings()).of(""), NotificationType.MESSAGE, device, bytes([number]) * 32)


@given(
    st.binary(max_size=50)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["notifications", "tokens"]),
        lambda values: st.lists(values) | st.dictionaries(st.sampled_from(["notifications", "tokens", "x"]), values),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode())
)
@example(b"[" * 100_000)
def test_garbage_is_answered_and_breaks_nothing(body):
    loop = asyncio.new_event_loop()
    try:
        assert answer(Arrivals(loop), body).status in {HTTPStatus.OK, HTTPStatus.BAD_REQUEST}
    finally:
        loop.close()
