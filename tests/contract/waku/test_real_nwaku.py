"""Our clients against real nwakus on loopback, and what was recorded of one against them."""

import asyncio
import re
import time

import httpx2
import pytest

from support import recordings
from support.go_waku import SHARD, TOPIC
from support.nwaku import AREA, OTHER_TOPIC, send
from support.real_nwaku import NWAKU, light_flags, real_nwaku, relay_flags, server_flags
from wakupush.devnet.processes import wait_until
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.errors import NotSubscribed, PushedToNobody
from wakupush.waku.light import LightNode
from wakupush.waku.node import NodeHealth, WakuNode
from wakupush.waku.rest import messages_path
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

if not NWAKU:
    pytest.skip("WAKUPUSH_TEST_NWAKU does not name a nwaku binary", allow_module_level=True)
pytestmark = pytest.mark.real

#: Recordings of relay and Store that depend on what was done before, or on other nodes.
DEPENDS = re.compile("after|size|dup|unsubscribe|no-peers|get-one-of|remote|not-mounted|no-store")
NAMES = [
    name
    for name in sorted(recordings.names(AREA))
    if name.startswith(("relay-", "store-", "not-found", "health-head"))
    and not DEPENDS.search(name)
    and isinstance(recordings.load(AREA, name).answer, str)
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A service node, its peer, and a light node of it."""
    folder = tmp_path_factory.mktemp("nwaku")
    with (
        real_nwaku("service", folder, *server_flags()) as service,
        real_nwaku("peer", folder, *relay_flags(service)) as peer,
        real_nwaku("light", folder, *light_flags(service)) as light,
    ):
        with WakuNode(service.url) as one, WakuNode(peer.url) as other:
            wait_until(lambda: arrives(one, other), timeout=120, what="the nodes have made their mesh")
        yield service, peer, light


def arrives(one, other):
    """Publish a message at a node, and say whether another one has any."""
    one.publish(SHARD, message(b"does it arrive?"))
    return bool(other.read(SHARD).messages)


def message(payload, **fields):
    return WakuMessage(payload=payload, content_topic=TOPIC, timestamp=time.time_ns(), **fields)


@pytest.mark.parametrize("name", NAMES)
def test_answers_as_recorded(name, nodes):
    recording = recordings.load(AREA, name)
    with httpx2.Client(base_url=nodes[0].url) as client:
        answer = send(client, recording)
    assert (answer.status_code, answer.text) == (recording.status, recording.answer)
    assert answer.headers["content-type"] == recording.content_type
    assert answer.headers["connection"] == "close"


def test_light_client(nodes):
    """It subscribes, pushes, reads what it pushed and what a relay node published, and learns of what is known."""
    mine, other = message(b"pushed", meta=b"meta"), message(b"published")

    async def run():
        async with AsyncRest(nodes[2].url) as rest:
            light = LightNode(rest)
            with pytest.raises(NotSubscribed):
                await light.read(SHARD, TOPIC)
            await light.subscribe(SHARD, [TOPIC, OTHER_TOPIC])
            await light.ping()
            await light.publish(SHARD, mine)
            with pytest.raises(PushedToNobody):
                await light.publish(SHARD, mine)
            with WakuNode(nodes[1].url) as peer:
                peer.publish(SHARD, other)
            messages = []
            async with asyncio.timeout(60):
                while len(messages) < 2:
                    messages += await light.read(SHARD, TOPIC)
                    await asyncio.sleep(0.05)
            assert messages == [mine, other]
            await light.unsubscribe(SHARD, [TOPIC])
            with pytest.raises(NotSubscribed):
                await light.read(SHARD, TOPIC)

    asyncio.run(run())


def test_relay_and_store(nodes):
    published_messages = [message(b"%d" % number, meta=b"m" * number) for number in range(3)]
    query = Query(
        pubsub_topic=SHARD,
        content_topics=(TOPIC,),
        start=published_messages[0].timestamp,
        end=published_messages[-1].timestamp,
    )
    arrivals = []
    with WakuNode(nodes[0].url) as service, WakuNode(nodes[1].url) as peer, Store(nodes[1].url) as store:
        for each in published_messages:
            service.publish(SHARD, each)
        wait_until(
            lambda: arrivals.extend(peer.read(SHARD).messages) or published_messages[-1] in arrivals,
            timeout=60,
            what="all arrive",
        )
        [page] = store.walk(query, with_messages=True)
    assert arrivals[-3:] == published_messages
    assert [(entry.hash, entry.message) for entry in page.messages] == [
        (message_hash(SHARD, it), it) for it in published_messages
    ]


def test_large_messages(nodes):
    """`--max-msg-size=1024KiB` lets messages of the network's size through to a peer, its Store and a light node."""
    large_message = message(bytes(787_100))
    arrivals = []
    with WakuNode(nodes[0].url) as service, WakuNode(nodes[1].url) as peer, Store(nodes[1].url) as store:
        service.publish(SHARD, large_message)
        wait_until(
            lambda: arrivals.extend(peer.read(SHARD).messages) or large_message in arrivals,
            timeout=60,
            what="it arrives",
        )
        query = Query(
            pubsub_topic=SHARD, content_topics=(TOPIC,), start=large_message.timestamp, end=large_message.timestamp
        )
        [page] = store.walk(query, with_messages=True)
    assert [entry.message for entry in page.messages] == [large_message]


def test_content_topic_that_is_not_utf_8(nodes):
    """It goes over the network and comes back as it was, amid JSON: its neighbours are readable."""
    neighbour = message(b"neighbour")
    body = b'{"payload": "AAAA", "contentTopic": "/\xff/"}'
    with WakuNode(nodes[0].url) as service, WakuNode(nodes[1].url) as peer:
        path, headers = f"{nodes[0].url}{messages_path(SHARD)}", {"Content-Type": "application/json"}
        assert httpx2.post(path, content=body, headers=headers).text == "OK"
        service.publish(SHARD, neighbour)
        for node in (service, peer):
            reads = []
            wait_until(
                lambda node=node, reads=reads: (
                    reads.append(node.read(SHARD)) or any(neighbour in it.messages for it in reads)
                ),
                timeout=60,
                what="both have come",
            )
            assert sum(each.malformed for each in reads) == 1


def test_health_without_peers(tmp_path):
    with real_nwaku("alone", tmp_path, *server_flags()) as node, WakuNode(node.url) as client:
        assert client.health() == NodeHealth(ready=False, state="Disconnected")
        client.publish(SHARD, message(b"to nobody"))
