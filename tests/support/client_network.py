"""A network of one process for the whole client."""

import asyncio
import time
from contextlib import asynccontextmanager

from wakupush.client.drivers.transport import Listeners
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.topics import (
    content_topic,
    partitioned_topic,
)
from wakupush.waku.errors import NodeUnreachable

SERVER, FRIEND, STRANGER = (PrivateKey.generate().public_key for _ in range(3))


class Network:
    """Hands what is published to whoever listens."""

    def __init__(self):
        self.listeners = Listeners()
        self.is_down = self.is_stuck = False
        #: A content topic on which nothing is taken.
        self.refused = None
        self.published = []

    async def publish(self, message):
        if self.is_down or message.content_topic == self.refused:
            raise NodeUnreachable("down")
        self.published.append(message)
        self.listeners.deliver([message])

    @asynccontextmanager
    async def listening(self, content_topic, receive):
        if self.is_stuck:
            await asyncio.sleep(60)
        with self.listeners.listening(content_topic, receive):
            yield


async def eventually(predicate):
    deadline = time.monotonic() + 120
    while not predicate():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def requests(network):
    topic = content_topic(partitioned_topic(SERVER))
    return [message for message in network.published if message.content_topic == topic]
