"""The light client's bookkeeping over a node of one process: what is subscribed, kept alive and taken back."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from wakupush.client.drivers import light as service
from wakupush.client.drivers.transport import LightTransport
from wakupush.waku.errors import NodeUnreachable


class Node:
    """A node with the functions of `LightNode`, which takes everything."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.subscribed = set()
        self.pings = 0
        self.pushed, self.refused, self.free_at = [], 0, 0.0

    async def publish(self, _shard, message):
        """Take a message a tenth of a second, some a while after they were sent."""
        await asyncio.sleep(0.15 * (message % 2))
        if time.monotonic() < self.free_at:
            self.refused += 1
            raise NodeUnreachable("exceeds the rate limit")
        self.free_at = time.monotonic() + 0.1
        self.pushed.append(message)

    async def subscribe(self, _shard, content_topics):
        await asyncio.sleep(self.seconds)
        self.subscribed |= set(content_topics)

    async def unsubscribe(self, _shard, content_topics):
        self.subscribed -= set(content_topics)

    async def ping(self):
        self.pings += 1

    async def read(self, _shard, _content_topic):
        return ()


@pytest.fixture
def light(monkeypatch):
    """Start a light client of a node; no request waits for the last one."""

    @asynccontextmanager
    async def start(node):
        monkeypatch.setattr(service, "LightNode", lambda _rest: node)
        monkeypatch.setattr(service, "FILTER_PAUSE", 0.0)
        monkeypatch.setattr(service, "FILTER_REQUESTS", 1000)
        async with LightTransport("http://127.0.0.1:1") as running:
            yield running

    return start


def listening(running, content_topic):
    return running.listening(content_topic, lambda _: None)


def test_a_busy_client_pings_and_takes_back_what_nobody_needs(light, monkeypatch):
    monkeypatch.setattr(service, "PING_SECONDS", 0.1)

    async def run():
        node = Node()
        async with light(node) as running, listening(running, "own"):
            for number in range(50):
                async with listening(running, f"ephemeral {number}"):
                    await asyncio.sleep(0.02)
            assert node.pings >= 5
            assert len(node.subscribed) < 20
            assert "own" in node.subscribed

    asyncio.run(run())


def test_messages_at_once_go_one_after_the_other_as_the_service_node_takes_them(light, monkeypatch):
    monkeypatch.setattr(service, "PUSH_PAUSE", 0.11)

    async def run():
        node = Node()
        async with light(node) as running:
            await asyncio.gather(*map(running.publish, range(8)))
        assert node.pushed == list(range(8))
        assert node.refused == 0

    asyncio.run(run())


def test_a_topic_that_is_wanted_again_while_others_are_subscribed_is_subscribed(light):
    async def listen(running, content_topic):
        async with listening(running, content_topic):
            await asyncio.sleep(60)

    async def run():
        node = Node(seconds=0.1)
        async with light(node) as running:
            tasks = []

            def begin(content_topic):
                tasks.append(asyncio.create_task(listen(running, content_topic)))
                return tasks[-1]

            begin("one")
            await asyncio.sleep(0.03)  # it is under way
            left = begin("other")
            await asyncio.sleep(0.03)
            left.cancel()
            begin("two")
            await asyncio.sleep(0.1)  # the second batch is under way, without what nobody wants
            begin("other")
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                while node.subscribed != {"one", "two", "other"}:  # noqa: ASYNC110 - the node says nothing
                    await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()

    asyncio.run(run())
