"""The light client's adapter, and the relay's out of an event loop, on every recorded answer of a real node."""

import asyncio
import json

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from support import recordings
from wakupush.model.waku_message import WakuMessage
from wakupush.waku.async_relay import AsyncRelay
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.errors import NodeRefused, NodeUnreachable, NotSubscribed
from wakupush.waku.light import LightNode

AREA = "waku-rest"
SHARD, TOPIC = "/waku/2/rs/16/32", "/waku/1/0x1a2b3c4d/rfc26"
MESSAGE = WakuMessage(payload=b"lp", content_topic=TOPIC)


def names(*beginnings):
    return sorted(name for name in recordings.names(AREA) if name.startswith(beginnings))


@pytest.fixture
def asking(serve):
    """Do something with a node that gives a recorded answer, or what is given; return the result and the requests."""

    def ask(answer, work, kind=LightNode):
        if isinstance(answer, str):
            recorded = recordings.load(AREA, answer)
            is_text = recorded.answer == "" or (recorded.content_type or "").startswith("text/")
            answer = recorded.status, recorded.answer if is_text else json.dumps(recorded.answer)
        requests = []

        async def respond(request):
            body = await request.body()
            requests.append((request.method, request.scope["raw_path"].decode(), body and json.loads(body)))
            each = answer.pop(0) if isinstance(answer, list) else answer
            return Response(each[1], status_code=each[0])

        methods = ["GET", "POST", "DELETE"]
        client = serve(Starlette(routes=[Route("/{path:path}", respond, methods=methods)]))

        async def run():
            async with AsyncRest(str(client.base_url)) as rest:
                return await work(kind(rest))

        return asyncio.run(run()), requests

    return ask


@pytest.mark.parametrize("name", names("filter-subscribe", "filter-resubscribe"))
def test_subscriptions(name, asking):
    recorded = recordings.load(AREA, name)
    is_ok = recorded.status == 200

    async def work(node):
        await node.subscribe(SHARD, [TOPIC])

    if not is_ok:
        with pytest.raises(NodeUnreachable):
            asking(name, work)
        return
    _, [(method, path, body)] = asking(name, work)
    assert (method, path) == ("POST", "/filter/v2/subscriptions")
    assert body.pop("requestId")
    assert body == {"contentFilters": [TOPIC], "pubsubTopic": SHARD}


def test_nwaku_says_in_the_body_that_it_failed(asking):
    async def work(node):
        await node.subscribe(SHARD, [TOPIC])

    with pytest.raises(NodeUnreachable, match="UNKNOWN"):
        asking((200, '{"requestId": "r", "statusDesc": "UNKNOWN"}'), work)
    with pytest.raises(NodeUnreachable):
        asking((200, "no JSON"), work)


@pytest.mark.parametrize("name", names("filter-ping"))
def test_pings(name, asking):
    async def work(node):
        await node.ping()

    if recordings.load(AREA, name).status == 200:
        _, [(method, path, _)] = asking(name, work)
        assert method == "GET"
        assert path.startswith("/filter/v2/subscriptions/")
    else:
        with pytest.raises(NotSubscribed):
            asking(name, work)


@pytest.mark.parametrize("name", names("filter-unsubscribe"))
def test_unsubscribing(name, asking):
    async def work(node):
        await node.unsubscribe(SHARD, [TOPIC])

    if recordings.load(AREA, name).answer["statusDesc"] == "OK":
        _, [(method, _, _)] = asking(name, work)
        assert method == "DELETE"
    else:
        with pytest.raises(NodeUnreachable):
            asking(name, work)


@pytest.mark.parametrize("method", [LightNode.subscribe, LightNode.unsubscribe])
def test_a_subscription_without_an_answer_says_what_to_do(serve, method):
    async def hang(_scope, receive, _send):
        while (await receive())["type"] != "http.disconnect":
            pass

    client = serve(hang)

    async def run():
        async with AsyncRest(str(client.base_url), timeout=0.2) as rest:
            with pytest.raises(NodeUnreachable, match=r"TimeoutError: .*restart the light node"):
                await method(LightNode(rest), SHARD, [TOPIC])

    asyncio.run(run())


@pytest.mark.parametrize("name", names("filter-messages"))
def test_reads(name, asking):
    recorded = recordings.load(AREA, name)

    async def work(node):
        return await node.read(SHARD, TOPIC)

    if recorded.status == 404:
        with pytest.raises(NotSubscribed):
            asking(name, work)
        return
    messages, [(_, path, _)] = asking(name, work)
    assert path == "/filter/v2/messages/%2Fwaku%2F2%2Frs%2F16%2F32/%2Fwaku%2F1%2F0x1a2b3c4d%2Frfc26"
    assert [message.timestamp for message in messages] == [each.get("timestamp", 0) for each in recorded.answer]


def test_nwaku_is_read_by_content_topic(asking):
    async def work(node):
        return [await node.read(SHARD, TOPIC) for _ in range(2)]

    answers = [(400, "Bad request initiated. Invalid path or method used."), (200, "[]"), (200, "[]")]
    read, requests = asking(answers, work)
    assert read == [(), ()]
    alone = "/filter/v2/messages/%2Fwaku%2F1%2F0x1a2b3c4d%2Frfc26"
    assert [path for _, path, _ in requests][1:] == [alone, alone]
    with pytest.raises(NotSubscribed):
        asking([(400, "Bad request"), (400, "not subscribed")], work)


@pytest.mark.parametrize("name", names("lightpush-v1"))
def test_light_push(name, asking):
    recorded = recordings.load(AREA, name)

    async def work(node):
        await node.publish(SHARD, MESSAGE)

    if recorded.status == 200:
        _, [(method, path, body)] = asking(name, work)
        assert (method, path, body["pubsubTopic"]) == ("POST", "/lightpush/v1/message", SHARD)
        assert body["message"]["payload"] == "bHA="
        return
    with pytest.raises(NodeRefused if recorded.status == 400 else NodeUnreachable):
        asking(name, work)


@pytest.mark.parametrize("name", names("relay-get"))
def test_relay_reads(name, asking):
    recorded = recordings.load(AREA, name)

    async def work(relay):
        return await relay.read(SHARD)

    if recorded.status == 404:
        with pytest.raises(NotSubscribed):
            asking(name, work, AsyncRelay)
        return
    messages, _ = asking(name, work, AsyncRelay)
    assert len(messages) == len(recorded.answer or [])


def test_a_node_that_is_not_there():
    async def run():
        async with AsyncRest("http://127.0.0.1:1", timeout=1) as rest:
            with pytest.raises(NodeUnreachable):
                await AsyncRelay(rest).publish(SHARD, MESSAGE)

    asyncio.run(run())
