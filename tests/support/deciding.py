"""What messages are decided with, built by hand: no database, socket or clock."""

from collections.abc import Mapping
from functools import lru_cache
from uuid import UUID

from wakupush.server.engine.decide import registration as registrations

from wakupush.model.entries import Entry, Task
from wakupush.model.events import EventKind, history
from wakupush.model.failures import Answer
from wakupush.model.limits import (
    DEVICE_PUSHES,
    FIRST_REGISTRATIONS,
    HOUR,
    INSTALLATIONS,
    MINUTE,
    REPEATS,
    Limit,
    Verdicts,
)
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform, TokenType
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.model.registrations import Preferences, Receiver, Stored, Target
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import registration, request
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.request import Item, Request, delivery_key
from wakupush.runtime.settings import DeliverySettings, GorushSettings, LimitSettings, Settings
from wakupush.server.engine.kind import Facts
from wakupush.server.engine.message import Message, OpenedRegistration, OpenedRequest

IDENTITY = Identity.of(PrivateKey(b"\2" * 32))
ALICE, BOB, CAROL = (PrivateKey(bytes([number]) * 32) for number in (3, 4, 5))
PHONE, TABLET, WATCH = (f"cf3695c5-ae8a-40d9-bf26-a554268f147{number}" for number in (5, 6, 7))
TOKEN = "0fd8121c-34b8-4ceb-b88e-5acbf94501ad"
SHARD, TOPIC = "/waku/2/rs/16/32", "/waku/1/0x00000001/rfc26"
NOW, WORKER = 1_000_000.0, "worker-1"
LEASE = UUID(int=7, version=4)
SUCCESS, INTERNAL, WRONG_TOKEN = None, Answer.INTERNAL_ERROR, Answer.WRONG_TOKEN
NOT_REGISTERED, UNSUPPORTED = Answer.NOT_REGISTERED, Answer.UNSUPPORTED_TOKEN_TYPE
MALFORMED, MISMATCH = Answer.MALFORMED_MESSAGE, Answer.VERSION_MISMATCH
ALLOW, DENY = Verdicts(), Verdicts(otherwise=False)


def settings(**limits):
    """Return settings that read nothing of the environment."""
    return Settings.model_construct(
        limits=LimitSettings(**limits), delivery=DeliverySettings(), gorush=GorushSettings()
    )


def facts(queue, *, size=2, limits=None, **fields):
    base = {"identity": IDENTITY, "settings": settings(**limits or {}), "now": NOW, "lease": LEASE, "seed": bytes(16)}
    return Facts(task=Task(queue, size, NOW - 1, WORKER), **base | fields)


def entry(number, *, seen=NOW - 3, topic=TOPIC):
    """Return a message on its way; its trace id says which."""
    return Entry(SHARD, number.to_bytes(8, "big") * 4, seen, WakuMessage(payload=b"", content_topic=topic))


def messages(*contents, **fields):
    """Return messages of these contents, in envelopes numbered from 1."""
    return [Message(entry(number, **fields), content) for number, content in enumerate(contents, 1)]


def installation(user, name=PHONE):
    return IDENTITY.installation(user.public_key.key_hash, name)


granted = lru_cache(lambda user, token: grant(user, IDENTITY.public_key, token))


def registering(version=1, *, user=ALICE, device=PHONE, nonce="", **fields):
    """Return an opened registration; one of another nonce is the same under another seal."""
    content = PushNotificationRegistration(
        **{
            "token_type": TokenType.APN,
            "device_token": f"token-{version}",
            "installation_id": device,
            "access_token": TOKEN,
            "enabled": True,
            "version": version,
            "grant": granted(user, TOKEN),
            "apn_topic": "im.status.ethereum",
            **fields,
        }
    )
    sealed = content.SerializeToString(deterministic=True) + user.public_key.compressed + nonce.encode()
    request_id = shake256_64(sealed)
    digest = IDENTITY.request_digest(request_id)
    return OpenedRegistration(user.public_key, request_id, digest, content, installation(user, device))


def unregistering(version, **fields):
    return registering(version, unregister=True, **fields)


def told(outcome):
    """Return what happened, in its order, with the failures."""
    found = [
        (kind, event.failure if kind is event.kind else None) for event in outcome.events for kind in history(event)
    ]
    found.sort(key=lambda each: _PLACES.get(each[0], 2))
    return [f"{kind}: {failure}" if failure else str(kind) for kind, failure in found]


#: What of a message is first and last.
_PLACES = {EventKind.RECEIVED: 0, EventKind.OPENED: 1, EventKind.ANSWERED: 3}


def preferences(
    asked,
    *,
    access_token,
    enabled=True,
    token_died=False,
    block_mentions=False,
    blocked_chat_list=(),
    muted_chat_list=(),
    allowed_mentions_chat_list=(),
):
    """Return the preferences of a device that bear on an item of a request."""
    return Preferences(
        token_fits=asked.access_token == access_token,
        token_died=token_died,
        enabled=enabled,
        block_mentions=block_mentions,
        author_blocked=asked.author in blocked_chat_list,
        chat_blocked=asked.chat_id in blocked_chat_list,
        chat_muted=asked.chat_id in muted_chat_list,
        mention_allowed=asked.chat_id in allowed_mentions_chat_list,
    )


CHAT, AUTHOR = b"chat", b"author"


class Devices(Mapping):
    """Registered devices, found by what a notification names: an item of theirs, and what they want."""

    def __init__(self, devices):
        """Take the platform of each installation, and its fields as `preferences` takes them."""
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
    asked = Request(message_id, items, too_many)
    return OpenedRequest(sender.public_key, number.to_bytes(32, "big"), asked, tuple(map(address, items)))


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


WRONG, TO_NOBODY = item(access_token="x"), item(CAROL)
MENTION, JOINING = NotificationType.MENTION, NotificationType.REQUEST_TO_JOIN_COMMUNITY
CONTACT = NotificationType.CONTACT_REQUEST


def reports(outcome):
    return (
        [report.error for report in request.parse_response(outcome.reply.inner).reports] if outcome.reply else "silence"
    )


def pushed(outcome):
    return [admission.delivery.delivery_key for admission in outcome.admissions]


def keys(*items, number=1):
    return [delivery_key(b"id %d" % number, each) for each in items]


def charge(number, position=0, device=PHONE, most=60, after=None):
    """Return what a notification of an envelope for one of Alice's devices is charged to."""
    platform = {PHONE: Platform.IOS, TABLET: Platform.ANDROID}[device]
    digest = IDENTITY.device_digest(target(platform))
    return Limit(DEVICE_PUSHES, most, MINUTE, entry(number).hash, position, digest.hex(), after=after)


REGISTERED = ["received", "opened", "registered", "answered"]


def refused(failure):
    told_too = [] if failure.answer is Answer.SILENCE else [f"answered: {failure.label}"]
    return ["received", "opened", f"refused: {failure.label}", *told_too]


def after(*changes, **fields):
    """Return the facts after these registrations and unregistrations."""
    stored = {
        each.installation: Stored(each.message.version, each.request_digest, not unregisters(each)) for each in changes
    }
    counts = {}
    for each, state in stored.items():
        counts[each.key_hash] = counts.get(each.key_hash, 0) + state.registered
    return facts(REGISTRATION, stored=stored, counts=counts, **fields)


def unregisters(asked):
    return asked.message.unregister


def decide_one(asked, known, verdicts=ALLOW):
    [outcome] = registrations.decide(messages(asked), known, verdicts)
    return outcome


def answers(outcomes):
    return [
        registration.parse_response(outcome.reply.inner).error if outcome.reply else "silence" for outcome in outcomes
    ]


V2, GONE = registering(2), unregistering(2)


def firsts(message, in_all=100_000, of_key=20):
    """Return what a first registration of Alice is counted for."""
    alice = IDENTITY.pseudonym(ALICE.public_key.key_hash).hex()
    first = Limit(FIRST_REGISTRATIONS, in_all, HOUR, message.hash)
    return first, Limit(INSTALLATIONS, of_key, HOUR, message.hash, key=alice, after=first)


def repeats(asked, message, most=3):
    return Limit(REPEATS, most, MINUTE, message.hash, key=asked.request_digest.hex())
