"""What messages are decided with, built by hand: no database, socket or clock."""

from functools import lru_cache
from uuid import UUID

from wakupush.model.entries import Entry, Task
from wakupush.model.events import EventKind, history
from wakupush.model.limits import Verdicts
from wakupush.model.platforms import TokenType
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.settings import DeliverySettings, GorushSettings, LimitSettings, Settings
from wakupush.server.inbox.content import Message, OpenedRegistration
from wakupush.server.inbox.facts import Facts

IDENTITY = Identity.of(PrivateKey(b"\2" * 32))
ALICE, BOB, CAROL = (PrivateKey(bytes([number]) * 32) for number in (3, 4, 5))
PHONE, TABLET, WATCH = (f"cf3695c5-ae8a-40d9-bf26-a554268f147{number}" for number in (5, 6, 7))
TOKEN = "0fd8121c-34b8-4ceb-b88e-5acbf94501ad"
SHARD, TOPIC = "/waku/2/rs/16/32", "/waku/1/0x00000001/rfc26"
NOW, WORKER = 1_000_000.0, "worker-1"
LEASE = UUID(int=7, version=4)
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
