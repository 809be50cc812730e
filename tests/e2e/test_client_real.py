"""The client SDK over real go-waku nodes: through a relay peer of the server's node, and as its light client."""

import asyncio
import os
import time

import httpx2
import pytest

from wakupush.client.client import Client
from wakupush.client.drivers.notifying import Recipient
from wakupush.client.drivers.storage import SqliteFile
from wakupush.client.drivers.transport import LightTransport, RelayTransport
from wakupush.client.rules.registering import Device, Options, Status
from wakupush.client.rules.sending import Result
from wakupush.devnet.demo.stack import SHARDS, External
from wakupush.devnet.parts.processes import Process, answers_http, free_port, wait_until
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.protocol.keys import PrivateKey

WAKU = os.environ.get("WAKUPUSH_TEST_WAKU")
if not WAKU:
    pytest.skip("set WAKUPUSH_TEST_WAKU to a binary", allow_module_level=True)
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def service_node(tmp_path_factory):
    """The server's node, which serves filter and light push to others."""
    flags = ["--relay", *(f"--pubsub-topic={shard}" for shard in SHARDS), "--filter", "--lightpush", "--store"]
    store = "--store-message-db-url=sqlite3://store.db"
    yield from go_waku(tmp_path_factory, "service", *flags, store, "--min-relay-peers-to-publish=0")


@pytest.fixture(scope="module")
def relay_node(tmp_path_factory, service_node):
    flags = ["--relay", f"--pubsub-topic={SHARDS[0]}", f"--staticnode={address(service_node)}"]
    yield from go_waku(tmp_path_factory, "relay", *flags)


@pytest.fixture(scope="module")
def light_node(tmp_path_factory, service_node):
    peer = address(service_node)
    flags = [
        "--relay=false",
        f"--pubsub-topic={SHARDS[0]}",
        f"--filternode={peer}",
        f"--lightpushnode={peer}",
        f"--storenode={peer}",
    ]
    yield from go_waku(tmp_path_factory, "light", *flags)


def address(url):
    return httpx2.get(f"{url}/debug/v1/info").json()["listenAddresses"][0]


def go_waku(tmp_path_factory, name, *flags):
    directory = tmp_path_factory.mktemp(name)
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        WAKU, "--address=127.0.0.1", "--ext-ip=127.0.0.1", f"--tcp-port={free_port()}", "--cluster-id=16", "--nat=none",
        "--ip-colocation-limit=0", "--rest", "--rest-address=127.0.0.1", f"--rest-port={port}", *flags,
    ]  # fmt: skip
    ready = f"{url}/debug/v1/info"
    with Process(name, command, log=directory / "log", cwd=directory, ready=lambda: answers_http(ready), grace=2):
        yield url


@pytest.fixture(scope="module")
def stack(start_stack, service_node, relay_node, light_node):  # noqa: ARG001 - see below
    # All nodes run before the server subscribes: later peers would disturb a go-waku.
    started = start_stack(external=External(waku_url=service_node))
    wait_until(lambda: answers_http(f"{started.ingest_url}/readyz"), timeout=120, what="ingest is ready")
    time.sleep(2)  # until the nodes have made their mesh
    return started


@pytest.mark.parametrize("mode", ["relay", "light"])
def test_register_discover_query_and_notify(stack, relay_node, light_node, mode):
    async def run():
        made = {"relay": lambda: RelayTransport(relay_node), "light": lambda: LightTransport(light_node)}
        async with made[mode]() as transport:
            file = SqliteFile(":memory:")
            alice, bob, carol = (
                Client(PrivateKey.generate(), transport, file.account(name)) for name in ("alice", "bob", "carol")
            )
            async with alice, bob, carol:
                device = Device(token_type=TokenType.APN, device_token=f"alice-{mode}", apn_topic="im.status")
                alice.enable_receiving(device, [stack.key.public_key])
                assert await alice.settled(120)
                [enrolment] = alice.registration.enrolments
                assert enrolment.status is Status.REGISTERED

                bob.enable_sending()
                [known] = await bob.query([alice.push_key])
                assert [way.server for way in known.ways] == [stack.key.public_key]
                assert await notify(bob, alice) == [Result.ACCEPTED]

                discovery = asyncio.create_task(carol.discover(alice.push_key, 30))
                await asyncio.sleep(3)  # until she listens
                alice.set_options(Options(contacts_only=True, contacts=(carol.push_key,)))
                assert await alice.settled(120)
                assert len((await discovery).ways) == 1
                carol.enable_sending()
                assert await notify(carol, alice) == [Result.ACCEPTED]
                alice.disable_receiving()
                assert await alice.settled(120)
            file.close()
            return alice.push_key.key_hash

    key_hash = asyncio.run(run())
    with stack.connect() as connection:
        query = "SELECT count(*) FROM registrations WHERE key_hash = %s AND registered"
        assert connection.execute(query, [key_hash]).fetchone() == (0,)
    pushed = httpx2.get(f"{stack.gorush_url}/dev/log").json()["entries"]
    assert len([each for each in pushed if each["notification"]["tokens"] == [f"alice-{mode}"]]) == 2


async def notify(sender, recipient):
    targets = await sender.notify(
        [Recipient(user=recipient.push_key)], message_id=os.urandom(32), chat_id="c", kind=NotificationType.MESSAGE
    )
    return [target.result for target in targets]
