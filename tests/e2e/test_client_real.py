"""The client SDK over real go-waku nodes: through a relay peer of the server's node, and as its light client."""

import asyncio
import time

import httpx2
import pytest

from e2e.clients import notify
from e2e.real_nodes import WAKU, go_waku, light_flags, relay_flags, server_flags
from wakupush.client.client import Client
from wakupush.client.drivers.storage import SqliteFile
from wakupush.client.drivers.transport import LightTransport, RelayTransport
from wakupush.client.rules.registering import Device, Options, Status
from wakupush.client.rules.sending import Result
from wakupush.devnet.demo.stack import External
from wakupush.devnet.parts.processes import answers_http, wait_until
from wakupush.model.platforms import TokenType
from wakupush.protocol.keys import PrivateKey

if not WAKU:
    pytest.skip("set WAKUPUSH_TEST_WAKU to a binary", allow_module_level=True)
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def service_node(folder):
    with go_waku("service", folder, *server_flags()) as node:
        yield node


@pytest.fixture(scope="module")
def relay_node(folder, service_node):
    with go_waku("relay", folder, *relay_flags(service_node)) as node:
        yield node


@pytest.fixture(scope="module")
def light_node(folder, service_node):
    with go_waku("light", folder, *light_flags(service_node)) as node:
        yield node


@pytest.fixture(scope="module")
def stack(start_stack, service_node, relay_node, light_node):  # noqa: ARG001 - see below
    # All nodes run before the server subscribes: later peers would disturb a go-waku.
    started = start_stack(external=External(waku_url=service_node.url))
    wait_until(lambda: answers_http(f"{started.ingest_url}/readyz"), timeout=120, what="ingest is ready")
    time.sleep(2)  # until the nodes have made their mesh
    return started


@pytest.mark.parametrize("mode", ["relay", "light"])
def test_register_discover_query_and_notify(stack, relay_node, light_node, mode):
    async def run():
        made = {"relay": lambda: RelayTransport(relay_node.url), "light": lambda: LightTransport(light_node.url)}
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
