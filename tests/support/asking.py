"""Push requests, and those whom they name, built by hand."""

from collections.abc import Mapping

from support.deciding import ALICE, BOB, IDENTITY, PHONE, TABLET, TOKEN, facts, installation
from support.wanting import preferences
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH
from wakupush.model.registrations import Receiver, Target
from wakupush.protocol.request import Item, Request
from wakupush.server.inbox.content import OpenedRequest

CHAT, AUTHOR = b"chat", b"author"


class Devices(Mapping):
    """Registered devices, found by what a notification names: an item of theirs, and what they want."""

    def __init__(self, devices):
        """Take the platform of each installation, and its fields as `wanting.preferences` takes them."""
        self.devices = devices

    def __getitem__(self, address):
        platform, fields = self.devices[address.installation]
        wanted = preferences(NAMED[address], **{"access_token": TOKEN, **fields})
        return Receiver(wanted, target(platform) if wanted.token_fits else None)

    def __iter__(self):
        return iter(self.devices)

    def __len__(self):
        return len(self.devices)


def target(platform=Platform.IOS):
    return Target(version=1, installation_id=PHONE, platform=platform, device_token="token", apn_topic="app")


#: An item that names it.
NAMED = {}


def receiver(platform=Platform.IOS, **fields):
    return platform, fields


def item(user=ALICE, device=PHONE, **fields):
    return Item(
        **{
            "key_hash": user.public_key.key_hash,
            "installation_id": device,
            "access_token": TOKEN,
            "type": NotificationType.MESSAGE,
            "chat_id": CHAT,
            "author": AUTHOR,
            "message": b"message",
            **fields,
        }
    )


def asking(*items, sender=BOB, number=1, message_id=None, too_many=False):
    """Return an opened request; those of one number are the same application message."""
    message_id = b"id %d" % number if message_id is None else message_id
    request = Request(message_id, items, too_many)
    return OpenedRequest(sender.public_key, number.to_bytes(32, "big"), request, tuple(map(address, items)))


def address(each):
    """Return what an item names."""
    named = IDENTITY.at_rest.address(
        IDENTITY.installation(each.key_hash, each.installation_id),
        access_token=each.access_token,
        chat_id=each.chat_id,
        author=each.author,
    )
    NAMED[named] = each
    return named


#: Alice's phone, and her Android tablet.
RECEIVERS = {installation(ALICE): receiver(), installation(ALICE, TABLET): receiver(Platform.ANDROID)}


def known(receivers=RECEIVERS, **fields):
    return facts(DISPATCH, **{"receivers": Devices(receivers), **fields})
