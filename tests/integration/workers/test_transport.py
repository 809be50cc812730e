"""The workers' transport over a Redis that dies between a task and its acknowledgement."""

import pytest
from kombu import Connection, Queue
from kombu.message import Message
from redis import RedisError

from wakupush.devnet.processes import wait_until
from wakupush.devnet.redis import RedisServer
from wakupush.workers import transport

QUEUE = Queue("dispatch")
#: Seconds.
VISIBILITY = 1


@pytest.fixture
def server(tmp_path):
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def channel(server):
    options = {"visibility_timeout": VISIBILITY, "unacked_restore_interval": 1}
    with Connection(server.url, transport=transport.RedisTransport, transport_options=options) as connection:
        channel = connection.default_channel
        channel.basic_qos(0, 1, False)
        connection.Producer().publish("a task", routing_key=QUEUE.name, declare=[QUEUE])
        yield channel


@pytest.mark.parametrize("end", [Message.ack, Message.reject, Message.requeue])
def test_unacknowledged_message_returns(server, channel, end):
    message = QUEUE(channel).get()
    assert not channel.qos.can_consume()
    server.kill()
    with pytest.raises((RedisError, OSError)):
        end(message)
    assert channel.qos.can_consume()
    server.start()

    def back():
        channel.qos.restore_visible()
        return QUEUE(channel).get()

    wait_until(lambda: back() is not None, timeout=30, what="the message is there again")
