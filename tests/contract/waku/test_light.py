"""The light client's adapter, and the relay's out of an event loop, on every recorded answer of a real node."""

import asyncio
import json
from contextlib import suppress

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from support import recordings
from wakupush.client.drivers import light
from wakupush.client.drivers.light import again
from wakupush.devnet.node import go_waku, nwaku
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings
from wakupush.model.waku_message import WakuMessage
from wakupush.waku.async_relay import AsyncRelay
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.codec import encode_message
from wakupush.waku.errors import NodeRefused, NodeUnreachable, NotSubscribed, PushedToNobody
from wakupush.waku.light import LightNode
from wakupush.waku.rest import messages_path

GO_WAKU, NWAKU = "waku-rest", "nwaku-rest"
SHARD, TOPIC = "/waku/2/rs/16/32", "/waku/1/0x1a2b3c4d/rfc26"
MESSAGE = WakuMessage(payload=b"lp", content_topic=TOPIC)


def recordings_like(*beginnings):
    """Parametrize with the recordings of both nodes whose names begin so."""
    params = [
        pytest.param(recordings.load(area, name), id=f"{area}/{name}")
        for area in (GO_WAKU, NWAKU)
        for name in sorted(recordings.names(area))
        if name.startswith(beginnings)
    ]
    return pytest.mark.parametrize("recording", params)


def answer_of(recording):
    return recording.status, recording.text


def is_ok(recording):
    return recording.status == 200 and recording.answer["statusDesc"] == "OK"


@pytest.fixture
def asking(serve):
    """Do something with a node that gives an answer, or some in turn, the last for ever; return result and requests."""

    def ask(answer, work, kind=LightNode):
        requests, answers = [], list(answer) if isinstance(answer, list) else [answer]

        async def respond(request):
            body = await request.body()
            requests.append((request.method, request.scope["raw_path"].decode(), body and json.loads(body)))
            each = answers.pop(0) if len(answers) > 1 else answers[0]
            return Response(each[1], status_code=each[0])

        methods = ["GET", "POST", "DELETE"]
        client = serve(Starlette(routes=[Route("/{path:path}", respond, methods=methods)]))

        async def run():
            async with AsyncRest(str(client.base_url)) as rest:
                return await work(kind(rest))

        return asyncio.run(run()), requests

    return ask


@recordings_like("filter-subscribe", "filter-resubscribe")
def test_subscriptions(recording, asking):
    async def work(node):
        await node.subscribe(SHARD, [TOPIC])

    if not is_ok(recording):
        with pytest.raises(NodeUnreachable):
            asking(answer_of(recording), work)
        return
    _, [(method, path, body)] = asking(answer_of(recording), work)
    assert (method, path) == ("POST", "/filter/v2/subscriptions")
    assert body.pop("requestId")
    assert body == {"contentFilters": [TOPIC], "pubsubTopic": SHARD}


def test_an_answer_without_json_is_no_subscription(asking):
    async def work(node):
        await node.subscribe(SHARD, [TOPIC])

    with pytest.raises(NodeUnreachable):
        asking((200, "no JSON"), work)


@recordings_like("filter-ping")
def test_pings(recording, asking):
    async def work(node):
        await node.ping()

    if is_ok(recording):
        _, [(method, path, _)] = asking(answer_of(recording), work)
        assert method == "GET"
        assert path.startswith("/filter/v2/subscriptions/")
    else:
        with pytest.raises(NotSubscribed):
            asking(answer_of(recording), work)


@recordings_like("filter-unsubscribe")
def test_unsubscribing(recording, asking):
    async def work(node):
        await node.unsubscribe(SHARD, [TOPIC])

    if is_ok(recording):
        _, [(method, _, _)] = asking(answer_of(recording), work)
        assert method == "DELETE"
    else:
        with pytest.raises(NodeUnreachable):
            asking(answer_of(recording), work)


@pytest.mark.parametrize("method", [LightNode.subscribe, LightNode.unsubscribe])
def test_unanswered_subscription_gives_advice(serve, method):
    async def hang(_scope, receive, _send):
        while (await receive())["type"] != "http.disconnect":
            pass

    client = serve(hang)

    async def run():
        async with AsyncRest(str(client.base_url), timeout=0.2) as rest:
            with pytest.raises(NodeUnreachable, match=r"TimeoutError: .*restart the light node"):
                await method(LightNode(rest), SHARD, [TOPIC])

    asyncio.run(run())


@recordings_like("filter-messages")
def test_reads(recording, asking):
    """A nwaku has no path of shard and content topic, and answers to the content topic alone."""
    no_path = recordings.load(NWAKU, "filter-messages-by-shard")
    answers = [no_path, recording] if recording.area == NWAKU else [recording]

    async def work(node):
        return await node.read(SHARD, TOPIC)

    if recording.status != 200:
        with pytest.raises(NotSubscribed):
            asking([answer_of(each) for each in answers], work)
        return
    messages, requests = asking([answer_of(each) for each in answers], work)
    topic = "%2Fwaku%2F1%2F0x1a2b3c4d%2Frfc26"
    paths = [f"%2Fwaku%2F2%2Frs%2F16%2F32/{topic}", topic]
    assert [path for _, path, _ in requests] == [f"/filter/v2/messages/{path}" for path in paths[: len(answers)]]
    assert [message.timestamp for message in messages] == [each.get("timestamp", 0) for each in recording.answer]


def test_what_is_learned_of_a_node_holds_until_it_errs(asking):
    """By content topic alone from the first answer on, until another kind of node stands there."""

    async def work(node):
        for _ in range(3):
            with suppress(NotSubscribed):
                await node.read(SHARD, TOPIC)

    no_path, empty = (answer_of(recordings.load(NWAKU, f"filter-messages-{end}")) for end in ("by-shard", "empty"))
    go_waku = answer_of(recordings.load(GO_WAKU, "filter-messages-by-contenttopic"))
    not_subscribed = answer_of(recordings.load(GO_WAKU, "filter-messages-not-subscribed"))
    _, requests = asking([no_path, empty, go_waku, not_subscribed], work)
    assert ["rs" in path for _, path, _ in requests] == [True, False, False, True]


NO_V3 = [(404, ""), answer_of(recordings.load(GO_WAKU, "lightpush-v3"))]
NO_V3_IDS = ["nwaku", "go-waku"]


async def push(node):
    await node.publish(SHARD, MESSAGE)


def error_of(recording):
    """Return the error of a push, None if it is taken."""
    text = json.dumps(recording.answer)
    if recording.status == 200:
        return None
    if "not_published_to_any_peer" in text or "No peers for topic" in text:
        return PushedToNobody
    return NodeRefused if recording.status == 400 else NodeUnreachable


@recordings_like("lightpush-v1", "lightpush-v3")
def test_light_push(recording, asking):
    answers = [NO_V3[0]] if "-v1" in recording.name else []
    if error := error_of(recording):
        with pytest.raises(error) as raised:
            asking([*answers, answer_of(recording)], push)
        assert raised.type is error
        return
    _, requests = asking([*answers, answer_of(recording)], push)
    paths = ["/lightpush/v3/message", "/lightpush/v1/message"][: len(requests)]
    assert [request[:2] for request in requests] == [("POST", path) for path in paths]
    for _, _, body in requests:
        assert body == {"pubsubTopic": SHARD, "message": encode_message(MESSAGE)}


@pytest.mark.parametrize("no_v3", NO_V3, ids=NO_V3_IDS)
def test_a_node_without_v3_is_asked_once(asking, no_v3):
    """Until it has no v1 either, so that another kind of node stands there."""
    success = answer_of(recordings.load(NWAKU, "lightpush-v1"))

    async def work(node):
        for _ in range(4):
            await push(node)

    _, requests = asking([no_v3, success, success, (404, ""), success, success], work)
    assert [path[:13] for _, path, _ in requests] == [f"/lightpush/v{version}" for version in (3, 1, 1, 1, 3, 3)]


def test_a_node_without_light_push_is_unreachable(asking):
    with pytest.raises(NodeUnreachable):
        asking((404, ""), push)


@pytest.mark.parametrize("status", [420, 500])
def test_a_known_message_counts_as_sent_if_the_node_says_so(asking, status):
    """So do newer nwakus: read in their source."""
    asking((status, json.dumps({"statusDesc": "Dropping already-seen message"})), push)


def test_a_late_service_node_may_have_published(asking, monkeypatch):
    """The text is read in nwaku's source, for v1 and v3 alike."""
    monkeypatch.setattr(light, "FIRST_WAIT", 0.001)
    late = (503, json.dumps({"statusDesc": "Push request timed out"}))
    duplicate = answer_of(recordings.load(NWAKU, "lightpush-v3-again"))

    async def work(node):
        await again(node.publish, SHARD, MESSAGE)

    _, requests = asking([late, duplicate], work)
    assert len(requests) == 2


def test_light_push_to_no_peer_is_no_success(asking):
    asking((200, '{"relayPeerCount":1}'), push)
    with pytest.raises(PushedToNobody):
        asking((200, '{"relayPeerCount":0}'), push)


@pytest.mark.parametrize("version", ["v1", "v3"])
@pytest.mark.parametrize("answers", ["lost", "not lost"])
def test_a_known_message_is_out_if_an_answer_was_lost(serve, answers, version):
    """A nwaku takes a push, and refuses the same again: it was not published to any peer."""
    message = WakuMessage(payload=b"lp", content_topic=TOPIC, timestamp=1)
    app = nwaku.create_app(DevelopmentNode(NodeSettings(shards=(SHARD,))))
    if version == "v1":
        app.router.routes[:] = [route for route in app.router.routes if "lightpush/v3" not in route.path]
    client = serve(app)
    if answers == "lost":
        fault = {"kind": "close", "path": f"/lightpush/{version}", "times": 1}
        client.post("/dev/faults", json=fault).raise_for_status()

    async def run():
        async with AsyncRest(str(client.base_url)) as rest:
            await again(LightNode(rest).publish, SHARD, message)
            with pytest.raises(PushedToNobody):
                await LightNode(rest).publish(SHARD, message)

    asyncio.run(run())
    counters = client.get("/dev/counters").json()
    assert (counters["published"], counters["duplicates"]) == (1, 2 if answers == "lost" else 1)


@pytest.mark.parametrize("app", [nwaku.create_app, go_waku.create_app], ids=["nwaku", "go-waku"])
def test_a_light_client_reads_large_messages(serve, app):
    message = WakuMessage(payload=bytes(787_100), content_topic=TOPIC, timestamp=1)
    client = serve(app())
    client.post("/relay/v1/subscriptions", json=[SHARD]).raise_for_status()

    async def run():
        async with AsyncRest(str(client.base_url)) as rest:
            await LightNode(rest).subscribe(SHARD, [TOPIC])
            client.post(messages_path(SHARD), json=encode_message(message)).raise_for_status()
            return await LightNode(rest).read(SHARD, TOPIC)

    assert asyncio.run(run()) == (message,)


def test_a_push_that_reaches_nobody_fails(asking, monkeypatch):
    monkeypatch.setattr(light, "FIRST_WAIT", 0.001)
    refusal = answer_of(recordings.load(NWAKU, "lightpush-v3-service-without-peers"))

    async def work(node):
        with pytest.raises(PushedToNobody):
            await again(node.publish, SHARD, MESSAGE)

    _, requests = asking(refusal, work)
    assert len(requests) == light.ATTEMPTS


@recordings_like("relay-get")
def test_relay_reads(recording, asking):
    async def work(relay):
        return await relay.read(SHARD)

    if recording.status == 404:
        with pytest.raises(NotSubscribed):
            asking(answer_of(recording), work, AsyncRelay)
        return
    messages, _ = asking(answer_of(recording), work, AsyncRelay)
    assert len(messages) == len(recording.answer or [])


def test_a_node_that_is_not_there():
    async def run():
        async with AsyncRest("http://127.0.0.1:1", timeout=1) as rest:
            with pytest.raises(NodeUnreachable):
                await AsyncRelay(rest).publish(SHARD, MESSAGE)

    asyncio.run(run())
