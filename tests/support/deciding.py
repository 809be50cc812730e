"""Builders for tests of decisions: messages, what is stored, and what outcomes say. No database, socket or clock."""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from wakupush.gorush.profiles import load_profiles
from wakupush.model.entries import Entry, Task
from wakupush.model.events import EventKind, history
from wakupush.model.failures import BY_LABEL, Answer
from wakupush.model.limits import Verdicts
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform, TokenType
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.model.registrations import Preferences, Receiver, Stored, Target
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import registration as registration_rules
from wakupush.protocol import request as request_rules
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.request import Item, Request
from wakupush.runtime.settings import DeliverySettings, GorushSettings, LimitSettings, Settings
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.push import decide as request_decide
from wakupush.server.push.lookup import RequestFacts
from wakupush.server.push.read import OpenedRequest
from wakupush.server.query.read import OpenedQuery
from wakupush.server.registration import decide as registration_decide
from wakupush.server.registration.installations import Installations
from wakupush.server.registration.read import OpenedRegistration

IDENTITY = Identity.of(PrivateKey(b"\2" * 32))
ALICE, BOB, CAROL = (PrivateKey(bytes([number]) * 32) for number in (3, 4, 5))
PHONE, TABLET, WATCH = (f"cf3695c5-ae8a-40d9-bf26-a554268f147{number}" for number in (5, 6, 7))
TOKEN = "0fd8121c-34b8-4ceb-b88e-5acbf94501ad"
SHARD, TOPIC = "/waku/2/rs/16/32", "/waku/1/0x00000001/rfc26"
NOW, WORKER = 1_000_000.0, "worker-1"
LEASE = UUID(int=7, version=4)
ALLOW = Verdicts()
NOTHING_STORED = Installations()


# Tasks, their messages and outcomes.


def context(queue, *, size=2, limits=None, **fields):
    """Return the context of a task that a worker took a second ago; `limits` are fields of the settings."""
    settings = Settings.model_construct(
        limits=LimitSettings(**limits or {}), delivery=DeliverySettings(), gorush=GorushSettings()
    )
    base = {
        "identity": IDENTITY,
        "settings": settings,
        "profiles": load_profiles(settings),
        "now": NOW,
        "room": 0,
        "lease": LEASE,
        "seed": bytes(16),
    }
    return Context(task=Task(queue, size, NOW - 1, WORKER), **base | fields)


def entry(number, *, seen=NOW - 3, topic=TOPIC):
    """Return an envelope that ingest saw two seconds before a worker took it; its hash says which."""
    return Entry(SHARD, number.to_bytes(8, "big") * 4, seen, WakuMessage(payload=b"", content_topic=topic))


def messages(*contents, last_part=None, **fields):
    """Return messages of these contents, in envelopes numbered from 1."""
    return [Message(entry(number, **fields), content, last_part) for number, content in enumerate(contents, 1)]


def hold_back(*limits):
    """Return the verdicts that hold back what is counted for these limits."""
    return Verdicts(frozenset(limit.id for limit in limits))


class CountingLimiter:
    """A limiter that counts in memory, and lets through those who come first."""

    def __init__(self):
        self.calls = []
        self._counts = Counter()

    def ask(self, limits, _counted=None):
        self.calls.append(list(limits))
        verdicts = {}
        for limit in limits:
            is_counted = limit.after is None or verdicts[limit.after.id]
            self._counts[limit.name, limit.key] += limit.cost if is_counted else 0
            verdicts[limit.id] = is_counted and self._counts[limit.name, limit.key] <= limit.most
        return [verdicts[limit.id] for limit in limits]


def kinds(outcome):
    """Return what happened to a message by its events, from `received` to `answered`: see `history`."""
    places = {EventKind.RECEIVED: 0, EventKind.OPENED: 1, EventKind.ANSWERED: 3}
    return sorted((kind for event in outcome.events for kind in history(event)), key=lambda kind: places.get(kind, 2))


def failures(outcome):
    """Return the failures that the events of an outcome name."""
    return [BY_LABEL[event.failure] for event in outcome.events if event.failure]


# Registrations.


def installation(user, device=PHONE):
    return IDENTITY.installation(user.public_key.key_hash, device)


#: The grant of a user to this server for an access token.
granted = lru_cache(lambda user, token: grant(user, IDENTITY.public_key, token))


def registration_message(version=1, *, user=ALICE, device=PHONE, nonce="", **fields):
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
    is_plausible = registration_rules.is_plausible(content, limits=registration_rules.LIMITS)
    return OpenedRegistration(
        user.public_key, IDENTITY.public_key, request_id, digest, content, installation(user, device), is_plausible
    )


def unregistration_message(version, **fields):
    return registration_message(version, unregister=True, **fields)


def stored_installations(*registrations, token_died=False):
    """Return what is stored after these registrations and unregistrations."""
    installations = Installations()
    for content in registrations:
        is_registered = not content.message.unregister
        row = Stored(content.message.version, content.request_digest, is_registered, token_died)
        installations.take(content.installation, row)
    return installations


def decide_registrations(*contents, installations=NOTHING_STORED, verdicts=ALLOW, limits=None):
    """Return the outcomes of registrations that arrive in one task."""
    return registration_decide.decide(
        messages(*contents), installations, verdicts, context(REGISTRATION, limits=limits)
    )


def registration_answers(outcomes):
    """Return the errors that registrations are answered with; None stands for success."""
    return [
        registration_rules.parse_response(outcome.replies[0].inner).error if outcome.replies else Answer.SILENCE
        for outcome in outcomes
    ]


# Queries.


def query(*users, sender=CAROL, number=1):
    """Return a query for these users."""
    return OpenedQuery(sender.public_key, number.to_bytes(32, "big"), tuple(user.public_key.key_hash for user in users))


# Push requests.


def item(user=ALICE, device=PHONE, **fields):
    return Item(
        **{
            "key_hash": user.public_key.key_hash,
            "installation_id": device,
            "access_token": TOKEN,
            "type": NotificationType.MESSAGE,
            "chat_id": b"chat",
            "author": b"author",
            "message": b"message",
            **fields,
        }
    )


#: Items for Alice's phone: with a wrong access token, and one that she filters; and one for a user without devices.
WRONG_ITEM, FILTERED_ITEM, LOST_ITEM = item(access_token="x"), item(type=NotificationType.MENTION), item(CAROL)


def push_request(*items, sender=BOB, number=1, message_id=None, too_many=False):
    """Return an opened request; those of one number are the same application message."""
    content = Request(b"id %d" % number if message_id is None else message_id, items, too_many)
    addresses = tuple(map(address, items))
    return OpenedRequest(sender.public_key, IDENTITY.public_key, number.to_bytes(32, "big"), content, addresses)


def address(item):
    """Return what an item names."""
    return IDENTITY.at_rest.address(
        IDENTITY.installation(item.key_hash, item.installation_id),
        access_token=item.access_token,
        chat_id=item.chat_id,
        author=item.author,
    )


@dataclass(frozen=True)
class Device:
    """A registered device, with the fields of `preferences`."""

    platform: Platform = Platform.IOS
    preferences: dict = field(default_factory=dict)
    proven: bool = False


#: Alice's phone, and her Android tablet.
DEVICES = {installation(ALICE): Device(), installation(ALICE, TABLET): Device(Platform.ANDROID)}


def receivers(requests, devices):
    """Return the devices that requests name, as the database finds them."""
    return {
        address: Receiver(wishes, target(device.platform, proven=device.proven) if wishes.token_fits else None)
        for content in requests
        for address, item in zip(content.addresses, content.request.items, strict=True)
        if (device := devices.get(address.installation))
        for wishes in [preferences(item, **{"access_token": TOKEN, **device.preferences})]
    }


def preferences(
    item,
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
        token_fits=item.access_token == access_token,
        token_died=token_died,
        enabled=enabled,
        block_mentions=block_mentions,
        author_blocked=item.author in blocked_chat_list,
        chat_blocked=item.chat_id in blocked_chat_list,
        chat_muted=item.chat_id in muted_chat_list,
        mention_allowed=item.chat_id in allowed_mentions_chat_list,
    )


def target(platform=Platform.IOS, *, proven=False):
    return Target(
        version=1, installation_id=PHONE, platform=platform, device_token="token", apn_topic="app", proven=proven
    )


def request_facts(*requests, devices=DEVICES, **fields):
    """Return what is stored that bears on requests."""
    return RequestFacts(receivers=receivers(requests, devices), **fields)


def decide_requests(*requests, verdicts=ALLOW, **facts):
    """Return the outcomes of requests that arrive in one task; `stored` is what `request_facts` takes."""
    return request_decide.decide(messages(*requests), request_facts(*requests, **facts), verdicts, context(DISPATCH))


def delivery_keys(*items, number=1):
    """Return the keys of the deliveries of items in the request of a number."""
    return [request_rules.delivery_key(b"id %d" % number, item) for item in items]


def admitted_keys(outcome):
    """Return the keys of the deliveries that an outcome adds."""
    return [admission.delivery.delivery_key for admission in outcome.effect.admissions]


def request_answers(outcome):
    """Return the errors that the items of a request are answered with; None stands for success."""
    if not outcome.replies:
        return Answer.SILENCE
    return [report.error for report in request_rules.parse_response(outcome.replies[0].inner).reports]
