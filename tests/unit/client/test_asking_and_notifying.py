"""The whole client, asking about users and notifying them over a node that may not take what it is given."""

import asyncio
import time

import pytest

from support.client_network import FRIEND, SERVER, STRANGER, eventually, requests
from wakupush.client import client as client_module
from wakupush.client.client import Client
from wakupush.client.drivers.notifying import Recipient
from wakupush.client.drivers.storage import ACQUAINTANCE
from wakupush.client.events import Unsent
from wakupush.client.rules.acquaintances import Acquaintance, Way
from wakupush.model.notifications import NotificationType
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.topics import content_topic, query_topics
from wakupush.waku.errors import NodeUnreachable

pytestmark = pytest.mark.anyio


@pytest.fixture
def friend(storage):
    """A user whose device is known."""
    way = Way(installation_id="phone", server=SERVER, access_token="token", version=1, learned_at=time.time())
    storage.put(ACQUAINTANCE, str(FRIEND), Acquaintance(user=FRIEND, ways=(way,)))
    return FRIEND


def query_topic(user):
    return content_topic(query_topics(user.key_hash)[0])


async def test_two_concurrent_queries_are_refused(network, client):
    client.enable_sending()
    first = asyncio.create_task(client.query([FRIEND]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it is being asked about
    network.is_down = True
    with pytest.raises(NodeUnreachable):
        await client.query([FRIEND, STRANGER])
    with pytest.raises(NodeUnreachable):
        await first


async def test_unpublished_notification_is_reported(network, storage, friend):
    events = []
    client = Client(PrivateKey.generate(), network, storage, on_event=events.append)
    client.enable_sending()
    network.is_down = True
    recipients, kind = [Recipient(user=friend)], NotificationType.MESSAGE
    notification = asyncio.create_task(client.notify(recipients, message_id=bytes(32), chat_id="c", kind=kind))
    await eventually(lambda: events)
    notification.cancel()
    assert events[0] == Unsent("down")


async def test_known_devices_are_notified_at_once(network, client, friend, monkeypatch):
    monkeypatch.setattr(client_module, "QUERY_SECONDS", 60.0)
    client.enable_sending()
    start_time = time.monotonic()
    recipients = [Recipient(user=STRANGER), Recipient(user=friend)]
    notification = asyncio.create_task(
        client.notify(recipients, message_id=bytes(32), chat_id="c", kind=NotificationType.MESSAGE)
    )
    await eventually(lambda: requests(network))
    assert time.monotonic() - start_time < 60
    notification.cancel()


async def test_unsent_query_stops_no_other_notification(network, storage, friend):
    events = []
    client = Client(PrivateKey.generate(), network, storage, on_event=events.append)
    client.enable_sending()
    network.refused = query_topic(STRANGER)
    recipients = [Recipient(user=STRANGER), Recipient(user=friend)]
    notification = asyncio.create_task(
        client.notify(recipients, message_id=bytes(32), chat_id="c", kind=NotificationType.MESSAGE)
    )
    await eventually(lambda: requests(network) and events)
    notification.cancel()
    assert events == [Unsent("down")]


async def test_only_force_repeats_a_recent_query(network, client, monkeypatch):
    monkeypatch.setattr(client_module, "QUERY_SECONDS", 0.01)
    client.enable_sending()
    for force in (False, False, True):
        recipients, kind = [Recipient(user=STRANGER)], NotificationType.MESSAGE
        assert await client.notify(recipients, message_id=bytes(32), chat_id="c", kind=kind, force=force) == []
    queries = [each for each in network.published if each.content_topic == query_topic(STRANGER)]
    assert len(queries) == 2
