"""Advertisements out of the Stores of both kinds of nodes, whatever strangers write to the topic."""

import asyncio
import base64
import os
import time

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from wakupush.client.drivers import history
from wakupush.client.drivers.history import History
from wakupush.devnet.node import go_waku, nwaku
from wakupush.devnet.node.go_waku_state import GoWakuNode
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings
from wakupush.devnet.processes import wait_until
from wakupush.waku.errors import NodeUnreachable

SHARD = "/waku/2/rs/16/32"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"
NODES = {
    "nwaku": lambda: nwaku.create_app(DevelopmentNode(NodeSettings(shards=(SHARD,)))),
    "go-waku": lambda: go_waku.create_app(GoWakuNode(NodeSettings(shards=(SHARD,)))),
}


@pytest.fixture(params=NODES)
def node(request, serve):
    return serve(NODES[request.param]())


def publish(node, payload, timestamp):
    message = {"payload": base64.b64encode(payload).decode(), "contentTopic": TOPIC, "timestamp": timestamp}
    node.post(f"/relay/v1/messages/{SHARD.replace('/', '%2F')}", json=message).raise_for_status()


def latest(client):
    """Return the payloads that are found of a user whose messages begin with a W."""
    user_messages = asyncio.run(
        History(str(client.base_url), SHARD).latest(TOPIC, lambda message: message.payload.startswith(b"W"))
    )
    return [message.payload for message in user_messages]


def test_strangers_cannot_hide_advertisements(node, monkeypatch):
    now = time.time_ns() - 5_000_000_000
    assert latest(node) == []
    for number, payload in enumerate([b"W1", b"W2"]):
        publish(node, payload, now + number)
    for number in range(450):
        publish(node, os.urandom(20).replace(b"W", b""), now + 10 + number)
    wait_until(lambda: latest(node) == [b"W1", b"W2"], timeout=60, what="all is stored, and found")
    monkeypatch.setattr(history, "MOST_PAGES", 3)
    assert latest(node) == []


def test_nobody_waits_for_a_store_that_does_not_answer(serve):
    async def silent(_request):
        await asyncio.sleep(60)
        return Response()

    client = serve(Starlette(routes=[Route("/{path:path}", silent)]))

    async def run():
        async with asyncio.timeout(0.2):
            await History(str(client.base_url), SHARD).latest(TOPIC, lambda _: True)

    start_time = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert time.monotonic() - start_time < 30


def test_busy_store_is_retried_and_absent_one_reported(serve):
    answers = [(429, ""), (200, '{"requestId": "x", "statusCode": 200, "statusDesc": "OK", "messages": []}')]

    async def respond(_request):
        status, body = answers.pop(0)
        return Response(body, status_code=status)

    assert latest(serve(Starlette(routes=[Route("/{path:path}", respond)]))) == []
    assert answers == []
    with pytest.raises(NodeUnreachable):
        asyncio.run(History("http://127.0.0.1:1", SHARD).latest(TOPIC, lambda _: True))
