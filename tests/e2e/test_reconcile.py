"""Whatever loses a message, it is in the Store: it is handled all the same, and once."""

import httpx2
import pytest

from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.waku_message import message_hash
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module", params=["nwaku", "go-waku"])
def stack(request, start_stack):
    return start_stack(manners=request.param)


@pytest.fixture
def client(stack):
    with WakuNode(stack.node_url) as node, stack.connect() as connection:
        yield Client(stack, node, connection)


class Client:
    """A client that sends, and sees in Postgres what became of it."""

    def __init__(self, stack, node, connection):
        self.stack, self.node, self.connection = stack, node, connection
        self.server = stack.key.public_key
        self.key = PrivateKey.generate()
        self.registered = messages.registration(self.key, self.server)
        self.sent = []

    def send(self, message, shard=SHARDS[0]):
        self.node.publish(shard, message)
        self.sent.append(message_hash(shard, message))

    def register(self):
        self.send(messages.register(self.key, self.server, self.registered))

    def ask_for_push(self):
        item = messages.notification(self.key.public_key.key_hash, self.registered)
        self.send(messages.request(self.key, self.server, [item]), SHARDS[1])

    def query(self):
        self.send(messages.query(self.key, self.key.public_key.key_hash))

    def handled(self):
        query = "SELECT count(*) FROM ledger WHERE message_hash = ANY (%s)"
        return self.connection.execute(query, [self.sent]).fetchone()[0]

    def wait(self, timeout=40.0):
        """Wait until everything that was sent is handled."""
        wait_until(lambda: self.handled() == len(self.sent), timeout=timeout, what="all messages are in the ledger")

    def kinds(self):
        """Return how often each event was recorded for what was sent."""
        query = "SELECT kind, count(*) FROM delivery_events WHERE trace_id = ANY (%s) GROUP BY kind"
        return dict(self.connection.execute(query, [[each[:8].hex() for each in self.sent]]).fetchall())

    def pushes(self):
        """Return how often gorush was asked to push to this client's device."""
        entries = httpx2.get(f"{self.stack.gorush_url}/dev/log").json()["entries"]
        return sum(self.registered.device_token in entry["notification"]["tokens"] for entry in entries)


def settled(stack, client):
    """Wait until reconcile has walked to the end once more."""
    count = "SELECT min(updated_at) > %s FROM watermarks"
    [now] = client.connection.execute("SELECT clock_timestamp()").fetchone()
    wait_until(lambda: client.connection.execute(count, [now]).fetchone()[0], timeout=30, what="all walks are finished")


def test_ingest_is_killed_and_misses_everything(stack, client):
    stack.ingest.kill()
    try:
        httpx2.post(f"{stack.node_url}/dev/restart").raise_for_status()  # nothing waits in the node for its return
        client.node.subscribe(SHARDS)
        client.register()
        client.wait()
        client.query()
        client.ask_for_push()
        client.wait()
        wait_until(lambda: client.pushes() == 1, timeout=10, what="the push")
        assert client.kinds()["queried"] == 1
    finally:
        stack.ingest.start()
    settled(stack, client)
    assert client.kinds()["received"] == 3
    assert client.pushes() == 1
