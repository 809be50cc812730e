"""One trace id follows a push through the logs of all processes, from ingest to gorush and back to the node."""

import json
from contextlib import closing

import pytest

from e2e.users import User
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.hashing import message_hash
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(settings={"WAKUPUSH_LOG_LEVEL": "DEBUG", "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.2"})


@pytest.fixture
def request_and_pushes(stack):
    """Register a device whose first push fails in passing, ask for a push; return the message and the pushes."""
    with WakuNode(stack.node_url) as node, stack.connect() as connection:
        user = User(stack, node, device_token="flaky-1")
        with closing(user.observer):
            user.register()
            user.wait(replies=1)
            request = user.ask_for_push()
            user.wait(replies=2, delivered=1)
        query = "SELECT count(*) FROM deliveries WHERE state = 'delivered'"
        wait_until(lambda: connection.execute(query).fetchone() == (1,), timeout=60, what="that is stored")
    return request, user.pushes


def traced(stack, trace_id):
    """Return the lines of all logs that have the id, by time."""
    lines = []
    for process in (stack.ingest, stack.reconcile, stack.feedback, stack.beat, *stack.workers.values()):
        for line in process.log.read_text().splitlines():
            fields = json.loads(line) if line.startswith("{") else {}
            if fields.get("trace_id") == trace_id:
                lines.append(fields)
    return sorted(lines, key=lambda fields: fields["timestamp"])


def test_a_push_can_be_followed(stack, request_and_pushes):
    request, pushes = request_and_pushes
    trace_id = 2 * message_hash(SHARDS[0], request)[:8].hex()
    stack.stop()
    lines = traced(stack, trace_id)
    steps = [(line["process"], line.get("kind", line["event"])) for line in lines]
    dispatch = "worker dispatch"
    in_order = [
        (dispatch, "received"),
        (dispatch, "opened"),
        (dispatch, "admitted"),
        (dispatch, "posting"),
        (dispatch, "attempt"),
        (dispatch, "failed"),
        (dispatch, "posting"),
        (dispatch, "attempt"),
        (dispatch, "delivered"),
    ]
    # On a slow machine reconcile can be first.
    assert steps[0] in {("ingest live", "message_enqueued"), ("ingest reconcile", "message_enqueued")}
    rest = iter(steps)
    assert all(step in rest for step in in_order), steps
    assert {(dispatch, "answered"), (dispatch, "answer_published")} <= set(steps)
    # gorush knows it by the id that the line of the post has.
    notif_ids = [push.notification["notif_id"] for push in pushes]
    assert [line["notif_id"] for line in lines if line["event"] == "posting"] == notif_ids
    assert [notif_id.split("-")[1] for notif_id in notif_ids] == ["1", "2"]
    assert [line["attempt"] for line in lines if line["event"] == "posting"] == [1, 2]
    assert [line["failure"] for line in lines if line.get("kind") == "failed"] == ["platform_unavailable"]
