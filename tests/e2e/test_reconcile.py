"""Whatever loses a message, it is in the Store: it is handled all the same, and once."""

import asyncio
import json
import shutil
import time
from dataclasses import replace

import httpx2
import pytest
from redis import Redis

from e2e.stacks import wakupush
from support.devnet import serving
from wakupush.devnet import messages
from wakupush.devnet.processes import answers_http, free_port, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol import envelopes, topics
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import seal_registration
from wakupush.redis import watched
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.light import LightNode
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module", params=["nwaku", pytest.param("go-waku", marks=pytest.mark.long)])
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
        self.message_hashes = []

    def send(self, message, shard=SHARDS[0]):
        self.node.publish(shard, message)
        self.message_hashes.append(message_hash(shard, message))

    def register(self):
        self.send(messages.register(self.key, self.server, self.registered))

    def ask_for_push(self):
        item = messages.notification(self.key.public_key.key_hash, self.registered)
        self.send(messages.request(self.key, self.server, [item]), SHARDS[1])

    def query(self):
        self.send(messages.query(self.key, self.key.public_key.key_hash))

    def handled(self):
        query = "SELECT count(*) FROM ledger WHERE message_hash = ANY (%s)"
        return self.connection.execute(query, [self.message_hashes]).fetchone()[0]

    def wait(self, timeout=120.0):
        """Wait until everything that was sent is handled."""
        wait_until(
            lambda: self.handled() == len(self.message_hashes), timeout=timeout, what="all messages are in the ledger"
        )

    def kinds(self):
        """Return how often each event was recorded for what was sent."""
        identity = Identity.of(self.stack.key)
        query = "SELECT kind, count(*) FROM delivery_history WHERE trace_id = ANY (%s) GROUP BY kind"
        return dict(
            self.connection.execute(
                query, [[identity.event_trace_id(each[:8].hex()) for each in self.message_hashes]]
            ).fetchall()
        )

    def pushes(self):
        """Return how often gorush was asked to push to this client's device."""
        entries = httpx2.get(f"{self.stack.gorush_url}/dev/log").json()["entries"]
        return sum(self.registered.device_token in entry["notification"]["tokens"] for entry in entries)


def settled(client):
    """Wait until reconcile has walked to the end once more."""
    count = "SELECT min(updated_at) > %s FROM watermarks WHERE walk IN ('registration', 'query', 'dispatch')"
    [now] = client.connection.execute("SELECT clock_timestamp()").fetchone()
    wait_until(
        lambda: client.connection.execute(count, [now]).fetchone()[0], timeout=120, what="all walks are finished"
    )


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
        wait_until(lambda: client.pushes() == 1, timeout=60, what="the push")
        assert client.kinds()["answered"] == 3
    finally:
        stack.ingest.start()
    settled(client)
    assert client.kinds()["received"] == 3
    assert client.pushes() == 1


async def push(url, message):
    """Publish as a light client."""
    async with AsyncRest(url) as rest:
        await LightNode(rest).publish(SHARDS[0], message)


@pytest.mark.parametrize("way", ["relay", "light", "reconcile"])
def test_a_registration_with_full_lists_in_one_message(stack, client, way):
    """Of 787 kB, as Status clients send it: in one message, not in segments."""
    contacts = [bytes([number % 256]) * 64 for number in range(5000)]
    lists = {"blocked_chat_list": contacts, "muted_chat_list": contacts, "allowed_mentions_chat_list": contacts[:1700]}
    client.registered = messages.registration(client.key, client.server, **lists)
    sealed = seal_registration(client.registered, client.key, client.server)
    [message] = envelopes.to_key(
        *(client.key, client.server, Type.PUSH_NOTIFICATION_REGISTRATION, sealed),
        timestamp=time.time_ns(),
        most_bytes=2**20,
    )
    assert 750_000 < len(message.payload) < 800_000
    if way == "reconcile":
        stack.ingest.kill()
    try:
        if way == "light":
            asyncio.run(push(stack.node_url, message))
            client.message_hashes.append(message_hash(SHARDS[0], message))
        else:
            client.send(message)
        client.wait()
    finally:
        if way == "reconcile":
            stack.ingest.start()
    assert client.kinds()["registered"] == 1
    assert client.kinds()["answered"] == 1


def test_redis_is_wiped_while_messages_are_queued(stack, client):
    client.register()
    client.wait()
    for worker in stack.workers.values():
        worker.stop()
    try:
        client.ask_for_push()
        client.query()
        with Redis.from_url(stack.redis_url) as redis:
            wait_until(lambda: redis.llen("dispatch") and redis.llen("query"), timeout=120, what="both are queued")
            redis.flushall()
            wait_until(lambda: watched.is_complete(redis), timeout=120, what="the watched topics are back")
            topic_names = [topics.topic(name) for name in topics.query_topics(client.key.public_key.key_hash)]
            assert watched.among(redis, topic_names) == set(topic_names)
            wait_until(lambda: redis.llen("dispatch") and redis.llen("query"), timeout=120, what="both are there again")
    finally:
        for worker in stack.workers.values():
            worker.start()
    client.wait()
    wait_until(lambda: client.pushes() == 1, timeout=120, what="the push")
    assert client.kinds()["answered"] == 3


def test_redis_comes_back_as_it_was_before(stack, client):
    """Its queues hold again what was handled since."""
    client.register()
    client.wait()
    for worker in stack.workers.values():
        worker.stop()
    files = stack.directory / "redis"
    try:
        client.ask_for_push()
        with Redis.from_url(stack.redis_url) as redis:
            wait_until(lambda: redis.llen("dispatch"), timeout=120, what="it is queued")
        time.sleep(1.1)  # the append-only file is flushed each second
        stack.redis.stop()
        backup = stack.directory / "redis-before"
        shutil.copytree(files, backup)
        stack.redis.start()
    finally:
        for worker in stack.workers.values():
            worker.start()
    client.wait(timeout=300)
    wait_until(lambda: client.pushes() == 1, timeout=120, what="the push")
    stack.redis.kill()
    shutil.rmtree(files)
    shutil.copytree(backup, files)
    shutil.rmtree(backup)
    stack.redis.start()
    with Redis.from_url(stack.redis_url) as redis:
        wait_until(lambda: not redis.llen("dispatch"), timeout=300, what="the old queue is empty")
    wait_until(lambda: answers_http(f"{stack.ingest_url}/readyz"), timeout=300, what="ingest is ready again")
    client.ask_for_push()
    client.wait(timeout=300)
    wait_until(lambda: client.pushes() == 2, timeout=120, what="the other push, and no third one")
    settled(client)
    assert client.pushes() == 2


def test_two_of_each_handle_each_message_once(stack, client):
    port = str(free_port())
    live = stack._wakupush("second live", "ingest", "live", settings={"WAKUPUSH_HTTP_PORT": "0"})
    reconcile = stack._wakupush(
        "second reconcile",
        *("ingest", "reconcile"),
        settings={"WAKUPUSH_HTTP_PORT": port},
        ready=lambda: answers_http(f"http://127.0.0.1:{port}/readyz"),
    )
    with live, reconcile:
        client.register()
        client.wait()
        for _ in range(20):
            client.ask_for_push()
        client.wait()
        settled(client)
    kinds = client.kinds()
    assert (kinds["received"], kinds["registered"], kinds["admitted"]) == (21, 1, 20)
    wait_until(lambda: client.pushes() == 20, timeout=120, what="all pushes")


def test_a_cache_of_the_node_runs_over(stack, client, forkserver):
    """A nwaku drops the oldest of 10 unread messages; of a go-waku the archive waits until it is read."""
    manners = "go-waku" if "go-waku" in str(stack.node._command) else "nwaku"
    options = ("--manners", manners, "--cache-capacity", "10", "--shard", SHARDS[0], "--shard", SHARDS[1])
    with serving("waku", stack.directory / "small-node.log", *options, forkserver=forkserver) as (node, _):
        elsewhere = {"WAKUPUSH_WAKU__URL": node, "WAKUPUSH_RECONCILE__STORES": json.dumps([node])}
        with WakuNode(node) as client.node:
            client.node.subscribe(SHARDS)
            for _ in range(30):
                client.key = PrivateKey.generate()
                client.registered = messages.registration(client.key, client.server)
                client.register()
            if manners == "nwaku":
                assert httpx2.get(f"{node}/dev/counters").json()["dropped_from_cache"] == 20
        with stack._wakupush("small live", "ingest", "live", settings=elsewhere | {"WAKUPUSH_HTTP_PORT": "0"}):
            wait_until(
                lambda: not httpx2.get(f"{node}/dev/counters").json()["archived"] < 30,
                timeout=120,
                what="everything is archived",
            )
            result = wakupush(stack.environment | elsewhere, "ingest", "reconcile", "--once", "--since", "5m")
            assert result.returncode == 0, result.stdout + result.stderr
            assert f"{SHARDS[0]} dispatch: 30 examined" in result.stdout
            client.wait()
    assert client.kinds()["registered"] == 30


def test_old_requests_of_the_store_are_not_pushed(stack, client):
    client.register()
    client.wait()
    stack.ingest.stop()
    try:
        item = messages.notification(client.key.public_key.key_hash, client.registered)
        late = messages.request(client.key, client.server, [item])
        client.send(replace(late, timestamp=time.time_ns() - 700 * 10**9))
        other = PrivateKey.generate()
        registration = messages.register(other, client.server, messages.registration(other, client.server))
        client.send(replace(registration, timestamp=time.time_ns() - 7000 * 10**9))
        for shard in SHARDS:
            client.node.read(shard)
        result = wakupush(stack.environment, "ingest", "reconcile", "--once", "--since", "3h")
        assert result.returncode == 0, result.stderr
        client.wait()
    finally:
        stack.ingest.start()
    kinds = client.kinds()
    assert (kinds["expired"], kinds["registered"]) == (1, 2)
    assert client.pushes() == 0
