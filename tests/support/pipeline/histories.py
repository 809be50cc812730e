"""What clients and strangers send to a server over some days, and the archive of it."""

from __future__ import annotations

import random
import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from wakupush.devnet import messages
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.segment_pb2 import SegmentMessage
from wakupush.pipeline.archive.files import HOUR, Archive, Hour
from wakupush.protocol import application, envelopes, payload, segments, topics
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.registration import seal_registration

SHARD = "/waku/2/rs/16/32"
#: Limits of the server that such a history runs into.
INSTALLATIONS, LIST_ITEMS, SEGMENTS = 3, 50, 6
#: In bytes of a WakuMessage; what is larger comes in segments.
SMALL = 2_500


@dataclass
class History:
    """Messages of many users; each makes the next one a second later."""

    server: PublicKey
    random: random.Random
    #: Nanoseconds since the epoch.
    now: int

    @classmethod
    def of(cls, server: PublicKey, seed: int, days: float = 2) -> History:
        return cls(server, random.Random(seed), time.time_ns() - int(days * 24 * HOUR))

    def tick(self) -> int:
        self.now += 10**9
        return self.now

    def send(self, client: PrivateKey, kind: int, inner: bytes, most_bytes: int = 150_000) -> list[WakuMessage]:
        outgoing = envelopes.to_key(client, self.server, kind, inner, timestamp=self.tick(), most_bytes=most_bytes)
        if self.random.random() < 0.3:  # as reference clients send it
            topic = topics.content_topic(topics.personal_topic(self.server))
            outgoing = [WakuMessage(payload=m.payload, content_topic=topic, timestamp=m.timestamp) for m in outgoing]
        return outgoing

    def register(self, client: PrivateKey, most_bytes: int = 150_000, **fields: object) -> list[WakuMessage]:
        content = messages.registration(client, self.server, **fields)
        ciphertext = seal_registration(content, client, self.server)
        return self.send(client, Type.PUSH_NOTIFICATION_REGISTRATION, ciphertext, most_bytes)

    def again(self, outgoing: Sequence[WakuMessage]) -> list[WakuMessage]:
        """Wrap recorded ciphertexts in new envelopes, as anyone can."""
        at = self.tick()
        return [WakuMessage(payload=m.payload, content_topic=m.content_topic, timestamp=at) for m in outgoing]

    def user_of_versions(self) -> list[WakuMessage]:
        """Return versions of two devices in any order, with repeats and unregistrations."""
        client = PrivateKey.generate()
        outgoing = []
        for _ in range(2):
            device = str(uuid.uuid4())
            for version in self.random.sample([1, 2, 3, 2**40, 2**64 - 1], k=self.random.randint(1, 4)):
                fields = {"unregister": True} if self.random.random() < 0.25 else self.preferences()
                outgoing.append(self.register(client, installation_id=device, version=version, **fields))
        outgoing += [self.again(copies) for copies in self.random.sample(outgoing, k=2)]
        self.random.shuffle(outgoing)
        return [message for copies in outgoing for message in copies]

    def preferences(self) -> dict[str, object]:
        items = [secrets.token_bytes(64) for _ in range(self.random.randint(0, 3))]
        names = ("allowed_key_list", "blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list")
        return {
            "token_type": self.random.choice([1, 2]),
            "device_token": self.random.choice(['a\\b"c', "tab\there", "ключ", "{}", secrets.token_hex(32)]),
            "enabled": self.random.random() < 0.8,
            "block_mentions": self.random.random() < 0.5,
            "allow_from_contacts_only": self.random.random() < 0.5,
            **{name: items for name in names if self.random.random() < 0.5},
        }

    def user_in_segments(self) -> list[WakuMessage]:
        """Return registrations in parts, which come in any order and more than once; one lacks a part."""
        client = PrivateKey.generate()
        device = str(uuid.uuid4())
        outgoing = []
        for version in (1, 2, 3):
            lists = {"muted_chat_list": [secrets.token_bytes(64) for _ in range(40)]}
            parts = self.register(client, SMALL, installation_id=device, version=version, **lists)
            assert len(parts) > 1
            if version == 2:
                parts = self.padded(client, installation_id=device, version=version, **lists)
            outgoing += parts[: -1 if version == 3 else None]
        outgoing += self.again(outgoing[:2])
        # Parts of one message have one time: they are told apart by their order of arrival alone.
        self.random.shuffle(outgoing)
        return outgoing

    def padded(self, client: PrivateKey, **fields: object) -> list[WakuMessage]:
        """Return a registration in two parts that name its length, as Status of 2026 does, the last one padded."""
        content = messages.registration(client, self.server, **fields)
        metadata = application.wrap(
            Type.PUSH_NOTIFICATION_REGISTRATION, seal_registration(content, client, self.server), client
        )
        halves = [SegmentMessage.FromString(part) for part in segments.split(metadata, len(metadata) // 2 + 1)]
        halves[-1].payload += bytes(100)
        for half in halves:
            half.original_payload_length = len(metadata)
        topic = topics.content_topic(topics.personal_topic(self.server))
        sealed = [payload.seal_asymmetric(half.SerializeToString(), self.server, client) for half in halves]
        at = self.tick()
        return [WakuMessage(payload=each, content_topic=topic, timestamp=at) for each in sealed]

    def user_with_too_many_segments(self) -> list[WakuMessage]:
        lists = {"muted_chat_list": [secrets.token_bytes(256) for _ in range(49)]}
        parts = self.register(PrivateKey.generate(), SMALL, **lists)
        assert len(parts) > SEGMENTS
        return parts

    def user_of_equal_versions(self) -> list[WakuMessage]:
        """Return two registrations of one version, as no good client sends them."""
        client, device = PrivateKey.generate(), str(uuid.uuid4())
        return [m for _ in range(2) for m in self.register(client, installation_id=device, **self.preferences())]

    def user_of_many_devices(self) -> list[WakuMessage]:
        """Return more devices than a user may have; when one goes, the next one that asks has its place."""
        client = PrivateKey.generate()
        devices = [str(uuid.uuid4()) for _ in range(5)]
        outgoing = [self.register(client, installation_id=device) for device in devices]
        outgoing += [
            self.register(client, installation_id=devices[0], version=2, unregister=True),
            self.register(client, installation_id=devices[4], version=2),
            self.register(client, installation_id=devices[3], version=2),
            self.register(client, installation_id=devices[0], version=3),
        ]
        return [message for copies in outgoing for message in copies]

    def strangers(self) -> list[WakuMessage]:
        """Return what is refused, or is no registration."""
        client, other = PrivateKey.generate(), PrivateKey.generate()
        good = messages.registration(client, self.server)
        ciphertext = seal_registration(good, client, self.server)
        kind = Type.PUSH_NOTIFICATION_REGISTRATION
        wrong = [
            {"version": 0},
            {"grant": b"\1" * 65},
            {"device_token": ""},
            {"device_token": "nul\0"},
            {"device_token": "../other"},
            {"token_type": 7},
            {"apn_topic": ""},
            {"installation_id": "no uuid"},
            {"access_token": "no uuid"},
            {"muted_chat_list": [b"x"] * 51},
        ]
        outgoing = [self.register(client, **fields) for fields in wrong]
        outgoing += [
            self.send(client, kind, seal_registration(good, client, other.public_key)),
            self.send(client, kind, ciphertext[:-1] + bytes([ciphertext[-1] ^ 1])),
            self.send(client, kind, b""),
            self.send(other, kind, ciphertext),
            self.send(client, Type.PUSH_NOTIFICATION_REQUEST, b"no request"),
            self.send(client, Type.PUSH_NOTIFICATION_QUERY, b""),
            self.send(client, 1, b"a chat message"),
            self.send(client, 99, b"nobody knows"),
        ]
        topic = topics.content_topic(topics.partitioned_topic(self.server))
        payload_without_signature = payload.seal_asymmetric(
            application.wrap(kind, ciphertext, client)[:-30], self.server
        )
        foreign = payload.seal_asymmetric(application.wrap(kind, ciphertext, client), other.public_key, client)
        for data in (payload_without_signature, foreign, b"", b"\4" * 200, secrets.token_bytes(500)):
            outgoing.append([WakuMessage(payload=data, content_topic=topic, timestamp=self.tick())])
        plain = self.register(client)[0]
        outgoing.append([WakuMessage(payload=plain.payload, content_topic=topic, version=0, timestamp=self.tick())])
        return [message for copies in outgoing for message in copies]

    def everything(self, users: int = 12) -> list[WakuMessage]:
        """Return messages in the order in which they arrive; some were sent in another one."""
        outgoing = []
        for _ in range(users):
            outgoing += self.user_of_versions()
        for _ in range(3):
            outgoing += self.user_in_segments() + self.user_of_equal_versions() + self.user_of_many_devices()
        return outgoing + self.user_with_too_many_segments() + self.strangers()


def archive(folder: Archive, outgoing: Sequence[WakuMessage]) -> None:
    """Write messages into an archive as they come: a third of them into each of three hours."""
    pages = {message_hash(SHARD, message): message for message in outgoing}
    rows = list(pages.items())
    third = len(rows) // 3 + 1
    for number, start in enumerate(range(0, len(rows), third)):
        folder.write(Hour(SHARD, number * HOUR), [dict(rows[start : start + third])], is_complete=number < 2)
