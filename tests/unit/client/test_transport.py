"""The light client's bookkeeping over a node of one process: what is subscribed, kept alive and taken back."""

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from itertools import chain

import pytest

from wakupush.client.drivers import light as service
from wakupush.client.drivers.tasks import Tasks
from wakupush.client.drivers.transport import LightTransport
from wakupush.waku.errors import NodeUnreachable, NotSubscribed

pytestmark = pytest.mark.anyio


class Node:
    """A node with the functions of `LightNode`, which takes everything."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.subscribed = set()
        #: The topics of each subscription, none for a ping.
        self.requests = []
        self.hangs = False
        #: Topics that were ended, and what was subscribed then.
        self.ended = {}
        #: That the service node forgets everything before the next subscription.
        self.forgets = False
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
        self.requests.append(list(content_topics))
        self.answer()
        await asyncio.sleep(self.seconds)
        if self.forgets:
            self.subscribed, self.forgets = set(), False
        self.subscribed |= set(content_topics)

    async def unsubscribe(self, _shard, content_topics):
        self.answer()
        self.subscribed -= set(content_topics)
        self.ended |= dict.fromkeys(content_topics, frozenset(self.subscribed))

    def answer(self):
        if self.hangs:
            raise NodeUnreachable("no answer")

    async def ping(self):
        """Answer as a go-waku does, even if it hangs."""
        self.requests.append([])
        await asyncio.sleep(self.seconds)
        if not self.subscribed:
            raise NotSubscribed("404")

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


@pytest.fixture
def used(monkeypatch):
    """Use a node, of which a client wants some topics; it is tended every 50 ms."""

    @asynccontextmanager
    async def start(node, topics):
        monkeypatch.setattr(service, "LightNode", lambda _rest: node)
        for name, value in {"FILTER_PAUSE": 0.0, "FILTER_REQUESTS": 1000, "SUBSCRIBE_ATTEMPTS": 1}.items():
            monkeypatch.setattr(service, name, value)
        for name, value in {"PING_SECONDS": 0.05, "RECOVER_SECONDS": 0.01, "POLL_SECONDS": 0.01}.items():
            monkeypatch.setattr(service, name, value)
        running = service.ServiceNode(None, ["a shard"], topics, lambda *_: None)
        tasks = Tasks()
        for work in running.work():
            tasks.start(work)
        try:
            yield running
        finally:
            await tasks.stop()

    return start


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the node says nothing
            await asyncio.sleep(0.01)


def listening(running, content_topic):
    return running.listening(content_topic, lambda _: None)


async def test_busy_client_renews_and_ends_unused_topics(light, monkeypatch):
    monkeypatch.setattr(service, "PING_SECONDS", 0.1)
    node = Node()
    async with light(node) as running, listening(running, "own"):
        for number in range(50):
            async with listening(running, f"ephemeral {number}"):
                await asyncio.sleep(0.02)
        assert sum("own" in topics for topics in node.requests) > 5
        assert len(node.subscribed) < 20
        assert "own" in node.subscribed


async def test_messages_at_once_go_one_by_one(light, monkeypatch):
    monkeypatch.setattr(service, "PUSH_PAUSE", 0.11)
    node = Node()
    async with light(node) as running:
        await asyncio.gather(*map(running.publish, range(8)))
    assert node.pushed == list(range(8))
    assert node.refused == 0


async def test_a_topic_wanted_again_is_subscribed(light):
    async def listen(running, content_topic):
        async with listening(running, content_topic):
            await asyncio.sleep(60)

    node = Node(seconds=0.1)
    async with light(node) as running:
        tasks = []

        def begin(content_topic):
            tasks.append(asyncio.create_task(listen(running, content_topic)))
            return tasks[-1]

        begin("one")
        await asyncio.sleep(0.03)  # it is under way
        other = begin("other")
        await asyncio.sleep(0.03)
        other.cancel()
        begin("two")
        await asyncio.sleep(0.1)  # the second batch is under way, without what nobody wants
        begin("other")
        await asyncio.sleep(0)
        await until(lambda: node.subscribed == {"one", "two", "other"})
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize("unanswered", ["subscribe", "unsubscribe"])
async def test_a_hanging_node_is_well_after_a_subscription(used, unanswered):
    node, topics = Node(), {"own", "other"}
    async with used(node, topics) as running:
        await asyncio.gather(*map(running.subscription, topics))
        await until(lambda: node.requests[-1] == [])
        node.hangs = True
        if unanswered == "subscribe":
            topics.add("new")
            with pytest.raises(NodeUnreachable):
                await running.subscription("new")
            topics.remove("new")
        else:
            topics.remove("other")
            await until(lambda: not running.is_well)
        node.requests.clear()
        await until(lambda: len(node.requests) > 5)
        assert not running.is_well
        with pytest.raises(NodeUnreachable):  # it may have been lost
            await running.subscription("own")
        node.hangs = False
        await until(lambda: running.is_well)
        assert "own" in node.subscribed


async def test_subscribe_goes_before_unsubscribe(used):
    node, topics = Node(seconds=0.1), {"own", "old"}
    async with used(node, topics) as running:
        await asyncio.gather(*map(running.subscription, topics))
        await until(lambda: node.requests[-1] == [])  # a ping, which takes a while
        topics.remove("old")
        topics.add("new")
        await running.subscription("new")
        await until(lambda: node.ended)
    assert node.ended == {"old": {"own", "new"}}


async def test_subscribe_preempts_a_waiting_unsubscribe(used, monkeypatch):
    node, topics = Node(), {"own", "old"}
    async with used(node, topics) as running:
        await asyncio.gather(*map(running.subscription, topics))
        topics.remove("old")
        monkeypatch.setattr(running._filtering, "_pause", 0.3)
        monkeypatch.setattr(service, "PING_SECONDS", 60.0)  # after this time
        node.requests.clear()
        await until(lambda: node.requests)
        topics.add("new")
        await running.subscription("new")
        await until(lambda: node.ended)
    assert node.ended == {"old": {"own", "new"}}


async def test_an_unwanted_topic_does_not_make_a_node_well(used):
    node, topics = Node(), {"own"}
    node.hangs = True
    async with used(node, topics) as running:
        with pytest.raises(NodeUnreachable):
            await running.subscription("own")
        topics.clear()
        await running.subscription("another")
        assert not running.is_well


async def test_a_lost_subscription_is_made_again(used):
    node, topics = Node(), {"own", "new"}
    async with used(node, topics) as running:
        await running.subscription("own")
        await until(lambda: node.requests[-1] == [])
        node.forgets = True
        await running.subscription("new")  # from here on pings succeed
        await until(lambda: node.subscribed == topics)


async def test_quiet_client_renews_once_then_pings(used):
    node = Node()
    async with used(node, {"own"}) as running:
        await running.subscription("own")
        await until(lambda: len(node.requests) > 5)
    assert node.requests[:6] == [["own"], ["own"], [], [], [], []]


async def tended(used, count):
    """Return the topics of each subscription of a client of so many, until it pings."""
    node, topics = Node(), [str(number) for number in range(count)]
    async with used(node, topics) as running:
        await asyncio.gather(*map(running.subscription, topics))
        await until(lambda: node.requests[-2:] == [[], []])
    return topics, [batch for batch in node.requests if batch]


async def test_topics_are_renewed_a_hundred_at_once(used):
    topics, subscriptions = await tended(used, 250)
    assert [len(batch) for batch in subscriptions[-3:]] == [100, 100, 50]
    assert sorted(chain(*subscriptions[-3:])) == sorted(topics)
    assert min(Counter(chain(*subscriptions)).values()) > 1


async def test_client_with_many_topics_pings(used):
    topics, subscriptions = await tended(used, 900)
    assert subscriptions[-1] == topics[800:]
