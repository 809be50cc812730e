"""Push requests, and those whom they name, built by hand."""

from deciding import ALICE, BOB, IDENTITY, PHONE, TABLET, TOKEN, facts, installation

from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH
from wakupush.model.registrations import Preferences, Receiver, Target
from wakupush.protocol.request import Item, Request
from wakupush.server.inbox.content import OpenedRequest

CHAT, AUTHOR = b"chat", b"author"


def receiver(platform=Platform.IOS, **preferences):
    return Receiver(
        Preferences(
            **{
                "access_token": TOKEN,
                "enabled": True,
                "token_died": False,
                "block_mentions": False,
                "blocked_chat_list": frozenset(),
                "muted_chat_list": frozenset(),
                "allowed_mentions_chat_list": frozenset(),
                **preferences,
            }
        ),
        Target(version=1, installation_id=PHONE, platform=platform, device_token="token", apn_topic="app"),
    )


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
    named = tuple(IDENTITY.installation(each.key_hash, each.installation_id) for each in items)
    return OpenedRequest(sender.public_key, number.to_bytes(32, "big"), request, named)


#: Alice's phone, and her Android tablet.
RECEIVERS = {installation(ALICE): receiver(), installation(ALICE, TABLET): receiver(Platform.ANDROID)}


def known(**fields):
    return facts(DISPATCH, **{"receivers": RECEIVERS, **fields})
