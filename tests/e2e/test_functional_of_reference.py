"""What status-go's own functional test for push notifications asks of its server, asked of ours by clients of 2026.

The scenario is that of ``tests-functional/tests/test_push_notification_server.py`` of status-go, with the server's key.
"""

import asyncio
import time
from dataclasses import replace

import pytest

from e2e.clients import SHARD, eventually, key, notify, people
from support.profiles import ADDED_KEYS
from wakupush.client.drivers.transport import RelayTransport
from wakupush.client.rules.registering import Device
from wakupush.client.rules.sending import Result
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PrivateKey

#: A public test key, of no server in use.
SERVER = "3e64442a0ba8a59b4d2dc7385cd4533a10e86dd644e7ec549cb92503787f5282"
PUBLIC_KEY = (
    "0x04b67a6ce39b7515b0f531e24afc849290bf6f98de2197c876363bc15ad92a21213"
    "fe5c7e0ac25c37920f5a23d92ca268af34ecc8b7c2a0357ea9a10fcd835a44d"
)
TOPIC = "im.status.ethereum"
#: Seconds within which a notification has to come.
PATIENCE = 10.0
IOS_FIELDS = {
    "topic": TOPIC,
    "content_available": True,
    "sound": "default",
    "priority": "high",
    "push_type": "alert",
}


@pytest.fixture(scope="module", params=["status", "both"])
def stack(request, start_stack):
    return start_stack(key=PrivateKey.from_hex(SERVER), settings={"WAKUPUSH_GORUSH__DIALECT": request.param})


class ClientNode(RelayTransport):
    """The node of a client, which publishes WakuMessages of version 0 as those of 2026 do."""

    async def publish(self, message):
        await super().publish(replace(message, version=0))


def test_alice_and_bob_are_notified_once_each(stack, peer_url, pushes, request):
    has_spec_keys = request.node.callspec.params["stack"] == "both"

    async def pushed(sender, recipient, kind):
        """Return the only notification of a push, which has to come in time."""
        begin = time.time()
        # The chat of two people is named by the key of the one who writes.
        assert await notify(sender, recipient, kind=kind, chat_id=str(key(sender))) == [Result.ACCEPTED]
        [push] = await eventually(pushes)
        assert push.arrived - begin < PATIENCE
        everything.append(push)
        notification = {name: value for name, value in push.notification.items() if name not in ADDED_KEYS}
        data = dict(notification["data"])
        if has_spec_keys:
            assert data.pop("chat_id") == data["chatId"]
            assert data.pop("message") == data["encryptedMessage"]
            assert data.pop("installation_ids") == [recipient.account.installation_id]
        return notification | {"data": data}

    def data(sender, recipient):
        return {
            "encryptedMessage": "0x",
            "chatId": f"0x{shake256_64(str(key(sender)).encode()).hex()}",
            "publicKey": f"0x{key(recipient).key_hash.hex()}",
        }

    async def run():
        assert str(stack.key.public_key) == PUBLIC_KEY
        async with people(lambda: ClientNode(peer_url, [SHARD]), "alice", "bob") as (alice, bob):
            for client, kind in ((alice, TokenType.APN), (bob, TokenType.FIREBASE)):
                token = f"{client.account.installation_id}-token"
                device = Device(token_type=kind, device_token=token, apn_topic=TOPIC)
                client.enable_receiving(device, [stack.key.public_key])
                client.enable_sending()
                assert await client.wait_until_settled(120)
            assert pushes() == []
            # His topic is left out: gorush would broadcast to it.
            to_bob = {
                "tokens": [f"{bob.account.installation_id}-token"],
                "platform": 2,
                "data": data(alice, bob),
            }
            to_alice = {
                "tokens": [f"{alice.account.installation_id}-token"],
                "platform": 1,
                "data": data(bob, alice) | {"deepLink": "status-app://chats"},
                **IOS_FIELDS,
            }
            pushed_to_bob = await pushed(alice, bob, NotificationType.CONTACT_REQUEST)
            assert pushed_to_bob == to_bob | {"message": "Someone sent you a contact request"}
            pushed_to_bob = await pushed(alice, bob, NotificationType.MESSAGE)
            assert pushed_to_bob == to_bob | {"message": "New message in Messenger"}
            pushed_to_alice = await pushed(bob, alice, NotificationType.MESSAGE)
            assert pushed_to_alice == to_alice | {"message": "New message in Messenger"}

    everything = []
    asyncio.run(run())
    # Nothing is left to be sent, and nothing else was.
    assert pushes() == []
    with stack.connect() as connection:
        assert connection.execute("SELECT state, count(*) FROM deliveries GROUP BY state").fetchall() == [
            ("delivered", 3)
        ]
    assert [push.outcome for push in everything] == ["delivered"] * 3
