"""The whole client over a network of one process: what its parts do together, without waiting for a node."""

import asyncio
import sqlite3
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from support.client_network import FRIEND, SERVER, STRANGER, eventually, requests
from wakupush.client import client as client_module
from wakupush.client.client import Client
from wakupush.client.config import Config
from wakupush.client.drivers import enrolling
from wakupush.client.drivers.asking import Asker
from wakupush.client.drivers.enrolling import Enroller
from wakupush.client.drivers.notifying import Recipient
from wakupush.client.drivers.storage import ACQUAINTANCE, SETTINGS, InUseError, SqliteFile
from wakupush.client.events import Unsent
from wakupush.client.rules.acquaintances import Acquaintance, Way
from wakupush.client.rules.advertising import SETTLE_SECONDS, advertisement
from wakupush.client.rules.mailbox import Mailbox
from wakupush.client.rules.registering import Device, RegistrarState
from wakupush.client.rules.sending import Result
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.pb.application_metadata_pb2 import ProtocolMessage
from wakupush.pb.push_notification_pb2 import PushNotificationReport, PushNotificationResponse
from wakupush.protocol.application import Type
from wakupush.protocol.envelopes import to_key
from wakupush.protocol.grants import grant
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.payload import open_symmetric
from wakupush.protocol.query import Info
from wakupush.protocol.topics import (
    contact_code_topic,
    symmetric_key,
)
from wakupush.waku.errors import NodeRefused

pytestmark = pytest.mark.anyio
PHONE = Device(token_type=TokenType.FIREBASE, device_token="phone")
TABLET = str(uuid.uuid4())


def topics(network):
    return len(network.listeners.receivers)


def test_known_account_cannot_become_anonymous(network, storage):
    key = PrivateKey.generate()
    Client(key, network, storage)
    with pytest.raises(ValueError, match="without anonymous mode"):
        Client(key, network, storage, Config(anonymous=True))


def test_an_account_of_another_key_is_refused(network, storage):
    key = PrivateKey.generate()
    first = Client(key, network, storage).account
    with pytest.raises(ValueError, match="another chat key"):
        Client(PrivateKey.generate(), network, storage)
    # An earlier version did not note the key.
    storage.put(SETTINGS, "", replace(storage.get(SETTINGS, ""), user=None))
    assert Client(key, network, storage).account == first
    with pytest.raises(ValueError, match="another chat key"):
        Client(PrivateKey.generate(), network, storage)


def test_an_anonymous_account_stays_so(network, storage):
    key = PrivateKey.generate()
    first = Client(key, network, storage, Config(anonymous=True))
    for config in (Config(), Config(anonymous=True)):
        assert Client(key, network, storage, config).push_key == first.push_key != key.public_key


async def test_unfollowing_holds_for_older_keys(network, client):
    await client.follow(FRIEND)
    client.learn_push_key(FRIEND, STRANGER)
    await client.follow(FRIEND)
    assert topics(network) == 2
    await client.unfollow(FRIEND)
    assert topics(network) == 0


async def test_an_error_of_the_app_does_not_end_the_client(network, storage):
    events = []

    def on_event(event):
        events.append(event)
        raise RuntimeError

    network.is_down = True
    async with Client(PrivateKey.generate(), network, storage, on_event=on_event) as client:
        client.enable_receiving(PHONE, [SERVER])
        await eventually(lambda: events)
        assert isinstance(events[0], Unsent)
        network.is_down = False
        client.try_again()
        await eventually(lambda: network.published)
        client.disable_receiving()
        await eventually(lambda: len(network.published) == 2)


async def test_activity_needs_a_valid_installation_id(network, client):
    user = PrivateKey.generate()
    await client.follow(user.public_key)
    for installation in ("[/]no uuid", TABLET):
        info = Info(key_hash=b"", installation_id=installation, version=1, access_token="", grant=b"")
        key = symmetric_key(contact_code_topic(user.public_key))
        network.listeners.deliver([advertisement(user, [info], topic_key=key, timestamp=1_000_000_000)])
    assert client.acquaintance(user.public_key).activity == {TABLET: 1.0}


@pytest.mark.parametrize("anonymous", [False, True])
async def test_contact_code_hides_the_chat_key(network, storage, anonymous):
    code = ProtocolMessage(public_message=b"bundles with the chat key").SerializeToString()
    config = Config(anonymous=anonymous, contact_code=code)
    async with Client(PrivateKey.generate(), network, storage, config) as client:
        client.advertise()
        assert await client.wait_until_advertised(30)
    [message] = network.published
    topic_key = symmetric_key(contact_code_topic(client.push_key))
    assert (code in open_symmetric(message.payload, topic_key).data) != anonymous


class Silent:
    """A Store that does not answer."""

    async def latest(self, _content_topic, _is_wanted):
        await asyncio.sleep(60)


async def test_a_silent_store_does_not_hold_up_discovery(network, storage):
    user = PrivateKey.generate()
    token = str(uuid.uuid4())
    info = Info(
        key_hash=user.public_key.key_hash,
        installation_id=TABLET,
        version=1,
        access_token=token,
        grant=grant(user, SERVER, token),
        server_key=SERVER.compressed,
    )
    start_time = time.monotonic()
    async with Client(PrivateKey.generate(), network, storage, history=Silent()) as client:
        assert (await client.discover(FRIEND, 0.2)).ways == ()
        discovery = asyncio.create_task(client.discover(user.public_key, 30))
        await eventually(lambda: topics(network) == 2)
        key = symmetric_key(contact_code_topic(user.public_key))
        network.listeners.deliver([advertisement(user, [info], topic_key=key, timestamp=1)])
        assert len((await discovery).ways) == 1
        network.is_stuck = True
        assert (await client.discover(STRANGER, 0.2)).ways == ()
    assert time.monotonic() - start_time < 20


async def test_a_refused_advertisement_is_not_sent_for_ever(network, storage, monkeypatch):
    monkeypatch.setattr(enrolling, "RETRY_SECONDS", 0.0)
    events = []

    async def publish(_message):
        raise NodeRefused(400, "too large")

    monkeypatch.setattr(network, "publish", publish)
    async with Client(PrivateKey.generate(), network, storage, on_event=events.append) as client:
        client.advertise()
        await eventually(lambda: events)
        await asyncio.sleep(3 * SETTLE_SECONDS)
    assert events == [Unsent("400: too large")]


async def test_a_client_looks_at_the_clock_now_and_then(network, storage, monkeypatch):
    monkeypatch.setattr(enrolling, "MOST_SECONDS", 0.05)
    clock = [1e9]
    async with Client(PrivateKey.generate(), network, storage, now=lambda: clock[0]) as client:
        client.enable_receiving(PHONE, [SERVER])
        await eventually(lambda: network.published)
        clock[0] -= 1e6
        await eventually(lambda: len(network.published) == 2)


async def test_one_client_of_an_account_runs_at_a_time(network, tmp_path):
    key = PrivateKey.generate()
    new = replace(PHONE, device_token="new")
    with SqliteFile(tmp_path / "state") as one, SqliteFile(tmp_path / "state") as other:
        first, second, somebody = (
            Client(key, network, storage)
            for storage in (one.account("a"), other.account("a"), other.account("somebody/else"))
        )
        async with first, somebody:
            with pytest.raises(InUseError):
                async with second:
                    pytest.fail("both run")
            assert second.registration == RegistrarState()  # it may look
            first.enable_receiving(new, [SERVER])
        async with second:
            assert second.registration.device == new
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


async def test_an_account_is_first_used_by_one_process(network, storage, monkeypatch):
    """Two wrote settings, and one went on with an installation id that nobody stored."""
    key = PrivateKey.generate()
    with monkeypatch.context() as in_the_same_moment:
        in_the_same_moment.setattr(storage, "get", lambda *_: None)
        early, late = Client(key, network, storage), Client(key, network, storage)
    with pytest.raises(InUseError, match="make this one anew"):
        async with early:
            pytest.fail("it runs")
    async with late:
        assert Client(key, network, storage).account.installation_id == late.account.installation_id


async def test_nothing_is_advertised_while_a_server_is_asked(network, client):
    async with client:
        client.enable_receiving(PHONE, [SERVER])
        client.advertise()
        await eventually(lambda: requests(network))
        assert not await client.wait_until_advertised(3 * SETTLE_SECONDS)
        assert len(network.published) == 1
        client.disable_receiving()
        await eventually(lambda: len(network.published) == 2)
        client.advertise()
        assert await client.wait_until_advertised(30)
        assert len(network.published) == 3


class Full:
    """A storage that keeps nothing while it is full."""

    def __init__(self, storage):
        self._storage = storage
        self.get, self.lock = storage.get, storage.lock
        self.is_full = False

    def put(self, kind, name, value):
        if self.is_full:
            raise sqlite3.OperationalError("database or disk is full")
        self._storage.put(kind, name, value)


async def test_a_storage_that_fails_in_passing_ends_nothing(network, storage, monkeypatch):
    monkeypatch.setattr(enrolling, "RETRY_SECONDS", 0.01)
    events, full = [], Full(storage)
    async with Client(PrivateKey.generate(), network, full, on_event=events.append) as client:
        client.enable_receiving(PHONE, [SERVER])
        full.is_full = True
        await eventually(lambda: events)
        assert not network.published  # nothing leaves before it is kept
        full.is_full = False
        client.try_again()
        await eventually(lambda: network.published)
    assert events[0] == Unsent("OperationalError")


async def test_a_check_that_fails_in_passing_is_not_the_last(network, storage, monkeypatch):
    checks, events = [], []

    async def check(_):
        checks.append(True)
        if len(checks) == 1:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Asker, "check", check)
    monkeypatch.setattr(Enroller, "wait_until_check", lambda _: asyncio.sleep(0.01))
    monkeypatch.setattr(client_module, "MOST_SECONDS", 0.01)
    async with Client(PrivateKey.generate(), network, storage, on_event=events.append):
        await eventually(lambda: len(checks) > 1)
    assert events == [Unsent("OperationalError")]


async def test_a_wrong_token_is_reported_while_nothing_can_be_stored(network, storage):
    server, full = PrivateKey.generate(), Full(storage)
    mailbox = Mailbox(server)
    names = ("phone", "tablet")
    ways = tuple(
        Way(installation_id=name, server=server.public_key, access_token="old", version=1, learned_at=time.time())
        for name in names
    )
    storage.put(ACQUAINTANCE, str(FRIEND), Acquaintance(user=FRIEND, ways=ways))

    def refuse(message):
        content = mailbox.take(message)
        full.is_full = True
        reports = [
            PushNotificationReport(
                public_key=FRIEND.key_hash, installation_id=name, error=PushNotificationReport.WRONG_TOKEN
            )
            for name in names
        ]
        response = PushNotificationResponse(message_id=bytes(32), reports=reports).SerializeToString()
        kind = Type.PUSH_NOTIFICATION_RESPONSE
        network.listeners.deliver(to_key(server, content.signer, kind, response, timestamp=time.time_ns()))

    async with asyncio.timeout(60), network.listening(mailbox.content_topic, refuse):
        client = Client(PrivateKey.generate(), network, full)
        client.enable_sending()
        kind = NotificationType.MESSAGE
        recipients = [Recipient(user=FRIEND), Recipient(user=STRANGER)]
        devices = await client.notify(recipients, message_id=bytes(32), chat_id="c", kind=kind)
    assert [device.result for device in devices] == [Result.WRONG_TOKEN] * 2


async def test_unfollowed_while_it_begins_to_follow(network, client):
    listening = network.listening
    start, unfollowed = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def listening_late(content_topic, receive):
        start.set()
        await unfollowed.wait()
        async with listening(content_topic, receive):
            yield

    network.listening = listening_late
    following = asyncio.create_task(client.follow(FRIEND))
    await start.wait()
    await client.unfollow(FRIEND)
    unfollowed.set()
    await following
    assert topics(network) == 0


async def test_changes_are_advertised_before_reported(network, client):
    async with client:
        assert await client.wait_until_advertised(0)  # nothing changed
        client.advertise()
        assert not await client.wait_until_advertised(0)
        assert await client.wait_until_advertised(30)
    assert len(network.published) == 1
