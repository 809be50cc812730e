"""The client SDK against the whole server: by relay and as a light client, on both kinds of nodes."""

import asyncio
import time
from contextlib import AsyncExitStack

import httpx2
import pytest

from e2e.clients import SHARD, Bot, device, eventually, frozen, key, notify, people
from wakupush.client.client import Client, SendingDisabledError
from wakupush.client.config import Config
from wakupush.client.drivers.history import History
from wakupush.client.drivers.storage import SqliteFile
from wakupush.client.events import Advertised, Lost
from wakupush.client.rules.receiving import seal_message
from wakupush.client.rules.registering import Options, Status
from wakupush.client.rules.sending import Result
from wakupush.model.notifications import NotificationType
from wakupush.protocol import application, payload, request, segments, topics
from wakupush.protocol.keys import PrivateKey


@pytest.fixture(scope="module", params=["nwaku", "go-waku"])
def stack(request, start_stack):
    return start_stack(manners=request.param, settings={"WAKUPUSH_GORUSH__DIALECT": "both"})


def test_from_registration_to_push_and_back(stack, transport, pushes):
    async def run():
        async with people(transport, "alice", "bob", "carol") as (alice, bob, carol):
            alice.enable_receiving(device("alice-phone"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)
            [enrolment] = alice.registration.enrolments
            assert (enrolment.status, enrolment.version) == (Status.REGISTERED, 1)

            with pytest.raises(SendingDisabledError):
                await notify(bob, alice)
            bob.enable_sending()
            message, message_id = seal_message(bob.account.key, key(alice), 1, b"hello")
            assert await notify(bob, alice, message=message) == [Result.ACCEPTED]
            [push] = await eventually(pushes)
            assert push.notification["tokens"] == ["alice-phone"]
            received = alice.receive(push.notification["data"], ["another chat", "a chat"])
            assert (received.message.inner, received.chat_id, received.repeated) == (b"hello", "a chat", False)
            assert received.message.message_id == message_id
            assert alice.receive(push.notification["data"]).repeated
            assert carol.receive(push.notification["data"]) is None

            # A new device token, and mentions that are not wanted.
            alice.enable_receiving(device("alice-new"), [stack.key.public_key], Options(block_mentions=True))
            assert await alice.wait_until_settled(120)
            assert await notify(bob, alice) == [Result.ACCEPTED]
            [push] = await eventually(pushes)
            assert push.notification["tokens"] == ["alice-new"]
            assert await notify(bob, alice, kind=NotificationType.MENTION) == [Result.ACCEPTED]  # and not sent

            # Contacts alone: bob's token is wrong, and nobody gives him another one.
            alice.set_options(Options(contacts_only=True, contacts=(key(carol),)))
            assert await alice.wait_until_settled(120)
            assert await notify(bob, alice) == [Result.WRONG_TOKEN]
            carol.enable_sending()
            assert await notify(carol, alice) == [Result.ACCEPTED]
            # He becomes a contact: what he knows is still wrong, and he finds the new one by asking.
            alice.set_options(Options(contacts_only=True, contacts=(key(carol), key(bob))))
            assert await alice.wait_until_settled(120)
            assert await bob.query([key(alice)], force=True)
            assert await notify(bob, alice) == [Result.ACCEPTED]

            alice.disable_receiving()
            assert await alice.wait_until_settled(120)
            assert await notify(bob, alice) == [Result.NOT_REGISTERED]

    asyncio.run(run())


def test_advertisements_are_discovered_and_followed(stack, transport):
    async def run():
        events = []
        async with people(transport, "alice", "bob", on_event=events.append) as (alice, bob):
            discovery = asyncio.create_task(bob.discover(key(alice), 120))
            alice.enable_receiving(device("d"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)
            [way] = (await discovery).ways
            assert (way.server, way.installation_id) == (stack.key.public_key, alice.account.installation_id)
            assert any(isinstance(event, Advertised) for event in events)
            # Nobody was asked: what was advertised is enough.
            assert bob._context.transport.published == []
            bob.enable_sending()
            assert await notify(bob, alice) == [Result.ACCEPTED]
            assert len(bob._context.transport.published) == 1
            # Whoever advertises a list that bob is not on leaves him with what he had.
            alice.set_options(Options(contacts_only=True))
            assert await alice.wait_until_settled(120)
            advertised = len([event for event in events if isinstance(event, Advertised)])
            alice.advertise()
            await eventually(lambda: len([event for event in events if isinstance(event, Advertised)]) > advertised)
            assert bob.acquaintance(key(alice)).ways == (way,)

    asyncio.run(run())


def test_latecomers_find_the_last_advertisement(stack, either):
    async def run():
        events = []
        async with people(either, "alice", on_event=events.append) as (alice,):
            alice.enable_receiving(device("d"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)
            alice.enable_receiving(device("new"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)
            await eventually(lambda: events and isinstance(events[-1], Advertised))
        async with people(either, "bob", history=History(stack.node_url, SHARD)) as (bob,):
            [way] = (await bob.discover(key(alice), 120)).ways
            assert way.version == 2
            bob.enable_sending()
            assert await notify(bob, alice) == [Result.ACCEPTED]

    asyncio.run(run())


def test_a_client_repairs_its_registration(stack, either, pushes):
    """A token dies, the sender hears of it, the receiver notices within a day, and the next push arrives."""
    offset = 0.0
    lost = []

    async def run():
        nonlocal offset

        def on_event(event):
            if isinstance(event, Lost):
                lost.append(event.enrolment.version)
                if len(lost) == 1:  # as an app gets a new token from Apple
                    alice.enable_receiving(device("alice-new"), [stack.key.public_key])

        options = {"now": lambda: time.time() + offset, "on_event": on_event}
        async with people(either, "alice", "bob", **options) as (alice, bob):
            bob.enable_sending()

            async def repaired(times):
                nonlocal offset
                offset += 86_400.0
                alice.try_again()  # wakes it as a passing time would
                await eventually(lambda: len(lost) == times)
                assert await alice.wait_until_settled(120)
                assert await alice.wait_until_advertised(120)

            alice.enable_receiving(device("dead-alice"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)
            assert await notify(bob, alice) == [Result.NOT_REGISTERED]
            pushes()
            await repaired(1)
            assert await notify(bob, alice) == [Result.ACCEPTED]
            [push] = await eventually(pushes)
            assert push.notification["tokens"] == ["alice-new"]

            # Marked by mistake: the same token works again, and a push to itself is enough to notice.
            with stack.connect() as connection:
                connection.execute(
                    "UPDATE registrations SET token_died_at = now() WHERE key_hash = %s", [key(alice).key_hash]
                )
            alice.enable_sending()
            assert (await alice.notify_self()).result is None
            await eventually(lambda: len(lost) == 2)
            assert await alice.wait_until_settled(120)
            assert (await alice.notify_self()).result is Result.ACCEPTED

    asyncio.run(run())
    assert lost == [1, 2]


def test_nothing_that_leaves_carries_the_senders_key(stack, transport):
    """Neither a layer's signer, nor a byte of any layer that the network or the server can open."""

    async def run():
        async with people(transport, "alice", "bob") as (alice, bob):
            alice.enable_receiving(device("d"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)
            bob.enable_sending()
            message, _ = seal_message(bob.account.key, key(alice), 1, b"hello")
            assert await notify(bob, alice, message=message) == [Result.ACCEPTED]
            return key(alice), key(bob), bob._context.transport.published

    alice, bob, published = asyncio.run(run())
    assert len(published) == 2
    query_topic, _ = topics.query_topics(alice.key_hash)
    signers, layers = [], []
    for message in published:
        if message.content_topic == topics.content_topic(query_topic):
            opened = payload.open_symmetric(message.payload, topics.symmetric_key(query_topic))
        else:
            opened = payload.open_asymmetric(message.payload, stack.key)
        content = application.read(opened)
        assert not isinstance(content, segments.Segment)
        signers += [opened.signer, content.signer]
        layers += [message.payload, message.content_topic.encode(), opened.data, opened.padding, content.inner]
    assert bob not in signers
    assert signers[0] == signers[1] != signers[2] == signers[3]  # a key for each, at both layers
    traces = [
        *(bob.uncompressed[1:33], bob.uncompressed[33:], bob.key_hash),
        *(text.encode() for text in (bob.uncompressed.hex(), bob.compressed.hex(), str(bob))),
    ]
    assert not [trace for trace in traces for layer in layers if trace in layer]
    # What the specification wants of the author is a hash.
    parsed = request.parse_request(application.read(opened).inner, most_items=10)
    assert [item.author for item in parsed.items] == [bob.author_hash]


def test_anonymous_mode_hides_the_chat_key(stack, either):
    async def run():
        async with AsyncExitStack() as exits:
            running = await exits.enter_async_context(either())
            file = exits.enter_context(SqliteFile(":memory:"))
            alice = Client(PrivateKey.generate(), running, file.account("a"), Config(anonymous=True))
            bob = Client(PrivateKey.generate(), running, file.account("b"))
            for each in (alice, bob):
                await exits.enter_async_context(each)
            assert alice.push_key != key(alice)
            alice.enable_receiving(
                device("d"), [stack.key.public_key], Options(contacts_only=True, contacts=(key(bob),))
            )
            assert await alice.wait_until_settled(120)
            bob.enable_sending()
            assert await notify(bob, alice) == []
            bob.learn_push_key(key(alice), alice.push_key)  # by a contact update
            discovery = asyncio.create_task(bob.discover(key(alice), 120))
            await asyncio.sleep(2)  # until he listens
            alice.advertise()
            assert len((await discovery).ways) == 1
            assert await notify(bob, alice) == [Result.ACCEPTED]
            return key(alice).key_hash, alice.push_key.key_hash

    chat, push = asyncio.run(run())
    with stack.connect() as connection:
        registered = {bytes(row[0]) for row in connection.execute("SELECT key_hash FROM registrations")}
    assert push in registered
    assert chat not in registered


def test_a_node_that_restarts_is_subscribed_to_again(stack, peer_url, either):
    async def run():
        async with people(either, "alice", "bob") as (alice, bob):
            alice.enable_receiving(device("d"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)
            for url in {stack.node_url, peer_url}:
                httpx2.post(f"{url}/dev/restart").raise_for_status()
            bob.enable_sending()

            async def accepted():
                await bob.query([key(alice)], force=True)
                return await notify(bob, alice) == [Result.ACCEPTED]

            deadline = time.monotonic() + 300
            while not await accepted():
                assert time.monotonic() < deadline
            alice.enable_receiving(device("new"), [stack.key.public_key])
            assert await alice.wait_until_settled(120)

    asyncio.run(run())


def test_servers_that_are_down_slow_or_lie_push_once(stack, transport, pushes):
    async def run():
        async with people(transport, "alice", "bob") as (alice, bob):
            running = alice._context.transport
            down, liar = Bot(running), Bot(running)
            async with down.listening(), liar.listening():
                servers = [down.key.public_key, stack.key.public_key, liar.key.public_key]
                discovery = asyncio.create_task(bob.discover(key(alice), 120))
                alice.enable_receiving(device("one-push"), servers)
                assert await alice.wait_until_settled(120)
                await discovery
                await eventually(lambda: len(bob.acquaintance(key(alice)).ways) == 3)
                down.behaviour, liar.behaviour = "down", "lying"
                bob.enable_sending()
                with frozen(stack.workers["dispatch"]):
                    notification = asyncio.create_task(notify(bob, alice))
                    # Longer than anybody waits for one server.
                    await eventually(lambda: len(bob._context.transport.published) >= 3)
                    assert not notification.done()
                assert await notification == [Result.ACCEPTED]
                assert liar.lies
                return alice.push_key.key_hash

    key_hash = asyncio.run(run())
    with stack.connect() as connection:
        query = "SELECT state FROM deliveries WHERE key_hash = %s"
        deadline = time.monotonic() + 120
        while connection.execute(query, [key_hash]).fetchall() != [("delivered",)]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert len([push for push in pushes() if push.notification["tokens"] == ["one-push"]]) == 1
