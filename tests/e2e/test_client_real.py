"""The client SDK over real nodes of either kind: through a relay peer of the server's node, and as its light client."""

import asyncio
import time

import httpx2
import pytest

from e2e import real_nodes
from e2e.clients import notify
from e2e.real_nodes import WAKU, go_waku
from support import real_nwaku
from support.real_nwaku import NWAKU
from wakupush.client.client import Client
from wakupush.client.drivers.storage import SqliteFile
from wakupush.client.drivers.transport import LightTransport, RelayTransport
from wakupush.client.rules.registering import Device, Options, Status
from wakupush.client.rules.sending import Result
from wakupush.devnet.processes import answers_http, wait_until
from wakupush.devnet.stack import External
from wakupush.model.platforms import TokenType
from wakupush.protocol.keys import PrivateKey

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=["go-waku", "nwaku"])
def nodes(request, tmp_path_factory):
    """The server's node, a relay node that is its peer, and a light node of it."""
    folder = tmp_path_factory.mktemp("nodes")
    is_go_waku = request.param == "go-waku"
    if not (WAKU if is_go_waku else NWAKU):
        pytest.skip(f"{'WAKUPUSH_TEST_WAKU' if is_go_waku else 'WAKUPUSH_TEST_NWAKU'} names no binary")
    run, flags = (go_waku, real_nodes) if is_go_waku else (real_nwaku.real_nwaku, real_nwaku)
    with (
        run("service", folder, *flags.server_flags()) as service,
        run("relay", folder, *flags.relay_flags(service)) as relay,
        run("light", folder, *flags.light_flags(service)) as light,
    ):
        yield service, relay, light


@pytest.fixture(scope="module")
def stack(start_stack, nodes):
    # All nodes run before the server subscribes: later peers would disturb a go-waku.
    started = start_stack(external=External(waku_url=nodes[0].url))
    wait_until(lambda: answers_http(f"{started.ingest_url}/readyz"), timeout=120, what="ingest is ready")
    time.sleep(2)  # until the nodes have made their mesh
    return started


@pytest.mark.parametrize("mode", ["relay", "light"])
def test_register_discover_query_and_notify(stack, nodes, mode):
    _, relay_node, light_node = nodes

    async def run():
        transports = {"relay": lambda: RelayTransport(relay_node.url), "light": lambda: LightTransport(light_node.url)}
        async with transports[mode]() as transport:
            file = SqliteFile(":memory:")
            alice, bob, carol = (
                Client(PrivateKey.generate(), transport, file.account(name)) for name in ("alice", "bob", "carol")
            )
            async with alice, bob, carol:
                device = Device(token_type=TokenType.APN, device_token=f"alice-{mode}", apn_topic="im.status")
                alice.enable_receiving(device, [stack.key.public_key])
                assert await alice.wait_until_settled(120)
                [enrolment] = alice.registration.enrolments
                assert enrolment.status is Status.REGISTERED

                bob.enable_sending()
                [answer] = await bob.query([alice.push_key])
                assert [way.server for way in answer.ways] == [stack.key.public_key]
                assert await notify(bob, alice) == [Result.ACCEPTED]

                discovery = asyncio.create_task(carol.discover(alice.push_key, 30))
                await asyncio.sleep(3)  # until she listens
                alice.set_options(Options(contacts_only=True, contacts=(carol.push_key,)))
                assert await alice.wait_until_settled(120)
                assert len((await discovery).ways) == 1
                carol.enable_sending()
                assert await notify(carol, alice) == [Result.ACCEPTED]
                alice.disable_receiving()
                assert await alice.wait_until_settled(120)
            file.close()
            return alice.push_key.key_hash

    key_hash = asyncio.run(run())
    with stack.connect() as connection:
        query = "SELECT count(*) FROM registrations WHERE key_hash = %s AND registered"
        assert connection.execute(query, [key_hash]).fetchone() == (0,)
    pushed = httpx2.get(f"{stack.gorush_url}/dev/log").json()["entries"]
    assert len([each for each in pushed if each["notification"]["tokens"] == [f"alice-{mode}"]]) == 2
