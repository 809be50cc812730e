"""A light client with two service nodes, one of which does not do its part: answers come within what a sender waits."""

import asyncio
from contextlib import ExitStack

import httpx2
import pytest

from e2e.clients import asked_while
from e2e.stacks import running_node
from wakupush.client.drivers.transport import LightTransport
from wakupush.devnet.stack import SHARDS

SHARD = SHARDS[0]
OK = '{"requestId": "r", "statusDesc": "OK"}'
FAULTS = {
    "hangs": [{"kind": "hang"}],
    "lies": [
        {"kind": "status", "status": 200, "body": OK, "path": "/filter/v2/subscriptions"},
        {"kind": "status", "status": 200, "body": "[]", "path": "/filter/v2/messages"},
        {"kind": "status", "status": 200, "body": "OK", "path": "/lightpush"},
    ],
    # As a go-waku 0.10.0 does: pings and light push go on.
    "hangs at subscriptions": [
        {"kind": "hang", "method": "POST", "path": "/filter/v2/subscriptions"},
        {"kind": "hang", "method": "DELETE", "path": "/filter/v2/subscriptions"},
        {"kind": "status", "status": 200, "body": "[]", "path": "/filter/v2/messages"},
    ],
    "limits": [
        {"kind": "status", "status": 429, "path": "/filter/v2/subscriptions"},
        {"kind": "status", "status": 429, "path": "/lightpush"},
    ],
}


@pytest.fixture(params=["nwaku", "go-waku"])
def nodes(request, stack, tmp_path, forkserver):
    """Two service nodes, peers of the server's."""
    with ExitStack() as exits:
        manners = request.param
        yield [
            exits.enter_context(running_node(stack, manners, tmp_path / name, forkserver)) for name in ("one", "other")
        ]


@pytest.mark.parametrize("fault", ["dies", *FAULTS])
def test_answers_come_through_the_other_node(stack, nodes, fault):
    [(faulty_url, faulty), (url, _)] = nodes

    def stop():
        if fault == "dies":
            faulty.kill()
        for each in FAULTS.get(fault, ()):
            httpx2.post(f"{faulty_url}/dev/faults", json=each).raise_for_status()

    light = LightTransport(faulty_url, [SHARD], others=[url])
    message_counts, _ = asyncio.run(asked_while(stack, light, stop, 3))
    # A sender asks again after 3 s; the machine of the tests is busy with others, so not each request tells.
    assert min(message_counts) == 1
