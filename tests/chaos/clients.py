"""Clients: who they are, what devices they have, and the messages that they make. The same seed makes the same clients.

What has to come of a message must be known before it is sent, whatever order the server handles it in. So devices have
manners, and each manner says what senders may be told and whether gorush has to be reached.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from chaos.plan import SUCCESS, Fate, Notified, Sent
from wakupush.devnet import messages
from wakupush.devnet.stack import SHARDS
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration, PushNotificationRequest
from wakupush.protocol import application, envelopes, payload, registration, request, topics
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey, PublicKey


@dataclass(frozen=True, slots=True)
class Manner:
    """How a device behaves, and what senders may be told of it."""

    name: str
    #: Of its token: see `wakupush.devnet.gorush.scripts`.
    script: str
    allowed_results: tuple[str, ...]
    fate: Fate
    #: Its share of the devices, and how often it is notified.
    weight: int
    #: Whether it unregisters and comes back.
    leaves: bool = False


GONE = "NOT_REGISTERED"
MANNERS = (
    Manner("steady", "", (SUCCESS,), Fate.MUST, 50),
    Manner("flaky", "flaky-2-", (SUCCESS,), Fate.MUST, 10),
    Manner("slow", "slow-200-x", (SUCCESS,), Fate.MUST, 6),
    # The next two register again and again under rising versions, changing their tokens.
    Manner("rising", "", (SUCCESS,), Fate.MUST, 12),
    # Its token is dead every other time that it registers.
    Manner("reviving", "", (SUCCESS, GONE), Fate.MAY, 6),
    Manner("leaving", "", (SUCCESS, GONE), Fate.MAY, 6, leaves=True),
    Manner("dead", "dead-", (SUCCESS, GONE), Fate.NEVER, 4),
    Manner("bad", "bad-", (SUCCESS, GONE, "INTERNAL_ERROR"), Fate.NEVER, 4),
    Manner("throttled", "throttled-", (SUCCESS,), Fate.KEPT, 2),
)
#: Seconds by which the clocks of clients are wrong; most are right.
CLOCKS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -90.0, -15.0, -6.0, 6.0, 15.0, 90.0)
#: How many of what was sent lately may be sent again.
REMEMBERED = 50
#: Seconds after which a request for a device that is hard to reach is sent again: it has failed by then.
LATE = 15.0
#: Bytes of a message of each item of a large request.
LARGE = 75_000
#: Bytes of the largest envelope; what is larger comes in several.
ENVELOPES = (150_000, 400_000)
#: The apps, by the topics of their devices, and how many devices each has.
APPS = {"im.status.ethereum": 4, "org.example.other": 1}


@dataclass(slots=True)
class Device:
    """A device of a user."""

    user: User
    manner: Manner
    installation_id: str
    access_token: str
    blocked_chat: bytes
    muted_chat: bytes
    #: The only chat from which it wants mentions, unless it wants none.
    mention_chat: bytes
    block_mentions: bool
    apn_topic: str
    is_ios: bool
    version: int = 0
    registered: bool = False


@dataclass(slots=True)
class User:
    """A user with devices."""

    key: PrivateKey
    shard: str
    #: Seconds that are added to the time.
    clock: float
    #: Whether it registers on the server's personal topic, as real clients do, or on the partitioned one.
    personal: bool
    devices: list[Device] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Whether what a query tells of its devices does not change."""
        return not any(device.manner.leaves for device in self.devices)


@dataclass(frozen=True, slots=True)
class Post:
    """A message to be published, in one envelope or several, and what is written down about them the first time."""

    pubsub_topic: str
    messages: tuple[WakuMessage, ...]
    sent: tuple[Sent, ...]


class Fleet:
    """The clients of one load process.

    Args:
        seed: of who they are and what they send; different for each process.
        server: whom they register with.
        users: how many; each has two devices.
    """

    def __init__(self, seed: str, server: PublicKey, users: int) -> None:
        self._random = Random(seed)
        self._server = server
        self.users = [self._user() for _ in range(users)]
        self._devices = [device for user in self.users for device in user.devices]
        self._settled = [user for user in self.users if user.is_settled]
        self._published: deque[Post] = deque(maxlen=REMEMBERED)
        self._again: deque[Callable[[], Post]] = deque(maxlen=REMEMBERED)
        #: Requests for devices that may not be reached, and when they were sent.
        self._doubtful: deque[tuple[float, Callable[[], Post]]] = deque()

    def register_all(self) -> list[Post]:
        """Return the first registrations of all devices."""
        return [self.register(device) for device in self._devices]

    def assume_registered(self) -> None:
        """Go on from where another fleet of the same seed registered all devices."""
        for device in self._devices:
            device.version, device.registered = 1, True

    def next(self) -> Post:
        """Return one more message."""
        kind = self._random.choices(list(_ACTIONS), weights=list(_ACTIONS.values()))[0]
        post = kind(self)
        self._published.append(post)
        return post

    def forget(self) -> None:
        """Repeat nothing of what was sent until now."""
        self._published.clear()
        self._again.clear()
        self._doubtful.clear()

    def latest(self, count: int) -> list[Callable[[], Post]]:
        """Return what makes the latest messages again, in new envelopes."""
        return list(self._again)[-count:]

    def _user(self) -> User:
        random = self._random
        user = User(
            PrivateKey(random.randbytes(32)), random.choice(SHARDS), random.choice(CLOCKS), random.random() < 0.5
        )
        for _ in range(2):
            user.devices.append(
                Device(
                    user=user,
                    manner=random.choices(MANNERS, weights=[manner.weight for manner in MANNERS])[0],
                    installation_id=self._uuid(),
                    access_token=self._uuid(),
                    blocked_chat=random.randbytes(64),
                    muted_chat=random.randbytes(64),
                    mention_chat=random.randbytes(64),
                    block_mentions=random.random() < 0.3,
                    apn_topic=random.choices(list(APPS), weights=list(APPS.values()))[0],
                    is_ios=random.random() < 0.5,
                )
            )
        return user

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _device(self, *manners: str) -> Device:
        """Return a device that behaves in one of these manners; any unless given."""
        devices = [device for device in self._devices if not manners or device.manner.name in manners]
        return self._random.choice(devices or self._devices)

    # Registrations

    def _token(self, device: Device) -> str:
        script = device.manner.script
        if device.manner.name == "reviving" and device.version % 2:
            script = "dead-"
        digits = self._random.randbytes(32).hex()
        return script + digits if script or device.is_ios else f"fcm-{digits}"

    def register(self, device: Device, **fields: object) -> Post:
        """Return the next registration of a device; `fields` replace its fields."""
        device.version += 1
        device.registered = not fields.get("unregister", False)
        kinds = PushNotificationRegistration
        return self._post_registration(
            device,
            (SUCCESS, "VERSION_MISMATCH"),
            version=device.version,
            installation_id=device.installation_id,
            token_type=kinds.APN_TOKEN if device.is_ios else kinds.FIREBASE_TOKEN,
            device_token=self._token(device),
            apn_topic=device.apn_topic,
            blocked_chat_list=[device.blocked_chat],
            muted_chat_list=[device.muted_chat],
            block_mentions=device.block_mentions,
            allowed_mentions_chat_list=[device.mention_chat],
            **fields,
        )

    def _post_registration(self, device: Device, allowed_results: tuple[str, ...], **fields: object) -> Post:
        user = device.user
        content = messages.registration(user.key, self._server, **{"access_token": device.access_token, **fields})
        sealed = registration.seal_registration(content, user.key, self._server)

        def make() -> Post:
            message = messages.to_server(user.key, self._server, Type.PUSH_NOTIFICATION_REGISTRATION, sealed)
            if user.personal:
                topic = topics.content_topic(topics.personal_topic(self._server))
                message = replace(message, content_topic=topic)
            return self._post(
                "registration",
                registration.request_id(sealed),
                user,
                [message],
                allowed_results=allowed_results,
                # Once its token died, a repeat is told to come with a higher version.
                mortal=(device.installation_id,) if GONE in device.manner.allowed_results else (),
                content=content.SerializeToString().hex(),
            )

        self._again.append(make)
        return make()

    def _rise(self) -> Post:
        return self.register(self._device("rising", "reviving"))

    def _leave_or_return(self) -> Post:
        device = self._device("leaving")
        if not device.manner.leaves:
            return self._rise()
        return self.register(device, unregister=True) if device.registered else self.register(device)

    def _register_wrongly(self) -> Post:
        device = self._device()
        return self._post_registration(
            device, ("MALFORMED_MESSAGE",), installation_id=self._uuid(), grant=self._random.randbytes(65)
        )

    # Queries

    def _query(self) -> Post:
        asker, user = self._random.choice(self.users), self._random.choice(self._settled or self.users)
        key_hash = user.key.public_key.key_hash
        message = messages.query(asker.key, key_hash)
        name, _ = topics.query_topics(key_hash)
        opened = application.read(payload.open_symmetric(message.payload, messages.query_key(name)))
        if not isinstance(opened, Opened):
            raise TypeError("a query comes in one part")
        devices = [(device.installation_id, device.access_token) for device in user.devices]
        mortal = tuple(device.installation_id for device in user.devices if GONE in device.manner.allowed_results)
        return self._post("query", opened.message_id, asker, [message], devices=tuple(sorted(devices)), mortal=mortal)

    # Push requests

    def _notify(self) -> Post:
        return self._request([self._device()])

    def notify_plainly(self, device: Device) -> Post:
        """Return a request for a device with nothing wrong in it."""
        return self._request([device], twisted=False)

    def _notify_many(self) -> Post:
        return self._request(self._random.sample(self._devices, self._random.randint(2, 6)))

    def _notify_at_length(self) -> Post:
        """Return a request of 300 KB, in one envelope or in segments, as clients are free to."""
        devices = self._random.sample(self._devices, 4)
        return self._request(devices, bytes_=LARGE, most_bytes=self._random.choice(ENVELOPES))

    def _request(
        self, devices: list[Device], *, twisted: bool = True, bytes_: int = 64, most_bytes: int = ENVELOPES[0]
    ) -> Post:
        asker = self._random.choice(self.users)
        message_id = self._random.randbytes(32)
        triples = [self._item(device, bytes_, twisted=twisted) for device in devices]
        inner = PushNotificationRequest(requests=[item for item, _, _ in triples], message_id=message_id)
        encoded = inner.SerializeToString()
        parsed = request.parse_request(encoded, most_items=len(triples)).items
        items = tuple(
            Notified(
                delivery_key=request.delivery_key(message_id, item).hex(),
                key_hash=item.key_hash.hex(),
                installation_id=item.installation_id,
                allowed_results=allowed_results,
                fate=fate,
            )
            for item, (_, allowed_results, fate) in zip(parsed, triples, strict=True)
        )

        is_doubtful = any(len(item.allowed_results) > 1 for item in items) and bytes_ < LARGE
        content = encoded.hex() if is_doubtful else ""

        def make() -> Post:
            kind = Type.PUSH_NOTIFICATION_REQUEST
            parts = envelopes.to_key(
                asker.key, self._server, kind, encoded, timestamp=time.time_ns(), most_bytes=most_bytes
            )
            return self._post("request", message_id, asker, parts, items=items, content=content)

        # Parts of two envelopes of the same message would be told apart by nobody.
        if bytes_ < LARGE:
            self._again.append(make)
            if is_doubtful:
                self._doubtful.append((time.monotonic(), make))
        return make()

    def _item(self, device: Device, bytes_: int, *, twisted: bool) -> tuple[PushNotification, tuple[str, ...], Fate]:
        """Return an item of a request, what its sender may be told, and what has to become of it."""
        fields: dict[str, object] = {
            "access_token": device.access_token,
            "chat_id": self._random.randbytes(64),
            "message": self._random.randbytes(bytes_),
            "type": PushNotification.MESSAGE,
            "author": self._random.randbytes(64),
            "installation_id": device.installation_id,
        }
        allowed_results, fate = device.manner.allowed_results, device.manner.fate
        twist = self._random.random()
        if twisted and device.manner.allowed_results == (SUCCESS,) and twist < 0.24:
            if twist < 0.2 or device.block_mentions:
                fate = Fate.NEVER
            if twist < 0.04:
                fields["access_token"], allowed_results = self._uuid(), ("WRONG_TOKEN",)
            elif twist < 0.08:
                fields["installation_id"], allowed_results = self._uuid(), (GONE,)
            elif twist < 0.12:
                fields["chat_id"] = device.blocked_chat
            elif twist < 0.16:
                fields["chat_id"] = device.muted_chat
            else:
                fields["type"] = PushNotification.MENTION
                if twist >= 0.2:
                    fields["chat_id"] = device.mention_chat
        item = PushNotification(public_key=device.user.key.public_key.key_hash, **fields)
        return item, allowed_results, fate

    # What is sent again

    def _repeat(self) -> Post:
        """Return an envelope that was sent before."""
        if not self._published:
            return self._notify()
        return replace(self._random.choice(self._published), sent=())

    def _repeat_late(self) -> Post:
        """Return a request in a new envelope that has failed by then, as far as it can."""
        if not self._doubtful or self._doubtful[0][0] > time.monotonic() - LATE:
            return self._notify()
        return self._doubtful.popleft()[1]()

    def _rewrap(self) -> Post:
        """Return an application message that was sent before, in a new envelope; each once."""
        if not self._again:
            return self._notify()
        position = self._random.randrange(len(self._again))
        make = self._again[position]
        post = make()
        del self._again[position]
        return post

    def _post(self, kind: str, id_: bytes, asker: User, parts: list[WakuMessage], **what: object) -> Post:
        now = time.time()
        timestamp = int((now + asker.clock) * 1e9)
        # What the hash does not cover decides nothing, so any version may come.
        version = self._random.choice((0, 1))
        copies = tuple(replace(part, timestamp=timestamp, version=version) for part in parts)
        records = tuple(
            Sent(
                kind=kind,
                id=id_.hex(),
                envelope=message_hash(asker.shard, message).hex(),
                client=asker.key.secret.hex(),
                at=now,
                parts=len(copies),
                **what,
            )
            for message in copies
        )
        return Post(asker.shard, copies, records)


def repeat(server: PublicKey, original: Sent) -> Post:
    """Return a request in a new envelope."""
    sender = PrivateKey(bytes.fromhex(original.client))
    message = messages.to_server(sender, server, Type.PUSH_NOTIFICATION_REQUEST, bytes.fromhex(original.content))
    envelope = message_hash(SHARDS[0], message).hex()
    return Post(SHARDS[0], (message,), (replace(original, envelope=envelope, at=time.time()),))


def roll_call(server: PublicKey, contents: list[tuple[str, PushNotificationRegistration]], seed: str) -> list[Post]:
    """Return one request for each device as it is registered now: when all is quiet, every answer is certain.

    Args:
        server: whom they are sent to.
        contents: private key of its user (hex) and last registration of each device.
        seed: of the senders.
    """
    fleet = Fleet(f"{seed} roll call", server, 10)
    by_script = {manner.script: manner for manner in MANNERS if manner.script}
    posts = []
    for secret, content in contents:
        usual_manner = next(
            (it for script, it in by_script.items() if content.device_token.startswith(script)), MANNERS[0]
        )
        manner = replace(usual_manner, allowed_results=(GONE,), fate=Fate.NEVER) if content.unregister else usual_manner
        user = User(PrivateKey(bytes.fromhex(secret)), SHARDS[0], 0.0, personal=False)
        device = Device(
            user=user,
            manner=manner,
            installation_id=content.installation_id,
            access_token=content.access_token,
            **dict.fromkeys(("blocked_chat", "muted_chat", "mention_chat"), b""),
            block_mentions=False,
            apn_topic="",
            is_ios=False,
            registered=True,
        )
        posts.append(fleet.notify_plainly(device))
    return posts


#: What clients do, and how often.
_ACTIONS = {
    Fleet._notify: 40,
    Fleet._notify_many: 13,
    Fleet._notify_at_length: 1,
    Fleet._query: 14,
    Fleet._rise: 8,
    Fleet._leave_or_return: 4,
    Fleet._register_wrongly: 2,
    Fleet._repeat: 8,
    Fleet._rewrap: 6,
    Fleet._repeat_late: 4,
}
