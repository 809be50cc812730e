"""What strangers' messages cost a worker: one ECDH at most, and a second where somebody signed a registration."""

from secrets import token_bytes

import pytest

from wakupush.devnet import messages
from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.application_metadata_pb2 import ApplicationMetadataMessage
from wakupush.protocol import application, ecies, envelopes, payload, segments, topics
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.server.engine.message import Part
from wakupush.server.engine.open import open_asymmetric, open_symmetric
from wakupush.server.registration.read import open_registration

IDENTITY, STRANGER, OTHER = Identity.of(PrivateKey.generate()), PrivateKey.generate(), PrivateKey.generate()
SERVER = IDENTITY.public_key
MALFORMED = b"\xff" * 300


def entry(content: bytes, version: int = payload.VERSION) -> Entry:
    return Entry("/shard", bytes(32), 0.0, WakuMessage(payload=content, content_topic="/t", version=version))


def to_us(data: bytes, signer: PrivateKey | None = None) -> bytes:
    return payload.seal_asymmetric(data, SERVER, signer)


def with_broken_signature(data: bytes) -> bytes:
    """Return a payload to us whose transport signature belongs to nothing."""
    encoded = payload.encode(data, STRANGER)
    return ecies.encrypt(encoded[:-65] + b"\xff" * 65, SERVER)


SEALED_TO_ANOTHER = payload.seal_asymmetric(b"data", OTHER.public_key, STRANGER)
SIGNED = application.wrap(Type.PUSH_NOTIFICATION_REQUEST, MALFORMED, STRANGER)
UNSIGNED = ApplicationMetadataMessage(payload=b"x", type=Type.PUSH_NOTIFICATION_REQUEST).SerializeToString()
CHANGED = bytearray(to_us(b"data"))
CHANGED[-1] ^= 1
#: Payload, what it is opened as, and how many ECDHs that takes.
GARBAGE = {
    "nothing": (b"", Failure.NOT_FOR_US, 0),
    "random": (token_bytes(400).replace(b"\4", b"\5"), Failure.NOT_FOR_US, 0),
    "random behind the first byte of a key": (b"\4" + b"\xff" * 400, Failure.NOT_FOR_US, 0),
    "random behind a key": (STRANGER.public_key.uncompressed + token_bytes(400), Failure.NOT_FOR_US, 1),
    "sealed to another": (SEALED_TO_ANOTHER, Failure.NOT_FOR_US, 1),
    "sealed to us and changed": (bytes(CHANGED), Failure.NOT_FOR_US, 1),
    "a broken signature": (with_broken_signature(b"data"), Failure.SIGNATURE_INVALID, 1),
    "nothing that can be read": (to_us(MALFORMED, STRANGER), Failure.METADATA_MALFORMED, 1),
    "unsigned": (to_us(UNSIGNED), Failure.SIGNATURE_MISSING, 1),
    "a segment of a segment": (to_us(segments.split(MALFORMED, 200)[0], STRANGER), Part, 1),
    "a request that is none": (to_us(SIGNED, STRANGER), application.Opened, 1),
}


@pytest.fixture
def agreed(monkeypatch) -> list[int]:
    """Return a list that grows by one with each ECDH of the server's key."""
    calls: list[int] = []
    shared_key = PrivateKey.shared_key

    def count(self, other):
        calls.append(1)
        return shared_key(self, other)

    monkeypatch.setattr(PrivateKey, "shared_key", count)
    return calls


@pytest.mark.parametrize(("content", "outcome", "cost"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_costs_one_ecdh_at_most(agreed, content, outcome, cost):
    result = open_asymmetric(entry(content), IDENTITY)
    assert result is outcome or (isinstance(outcome, type) and isinstance(result, outcome))
    assert len(agreed) == cost


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_the_version_of_a_message_decides_nothing(version):
    """Its hash does not cover it: anybody can publish a copy that has another one."""
    key = topics.symmetric_key("topic")
    asymmetric, symmetric = to_us(SIGNED, STRANGER), payload.seal_symmetric(SIGNED, key, STRANGER)
    assert isinstance(open_asymmetric(entry(asymmetric, version), IDENTITY), application.Opened)
    assert isinstance(open_symmetric(entry(symmetric, version), [key]), application.Opened)


def test_garbage_on_query_topics_costs_none(agreed):
    key = topics.symmetric_key("topic")
    for content in (b"", token_bytes(400), SEALED_TO_ANOTHER, payload.seal_symmetric(MALFORMED, key)):
        assert isinstance(open_symmetric(entry(content), [key, token_bytes(32)]), Failure)
    assert agreed == []


def test_a_registration_costs_a_second_one(agreed):
    """Whether it can be opened with the key that signed it is what the specification has the server find out."""
    [message] = envelopes.to_key(STRANGER, SERVER, Type.PUSH_NOTIFICATION_REGISTRATION, MALFORMED, timestamp=0)
    agreed.clear()
    opened = open_asymmetric(entry(message.payload), IDENTITY)
    with pytest.raises(Refused) as refused:
        open_registration(IDENTITY, opened.signer, opened.recipient, opened.inner, most_bytes=10_000)
    assert refused.value.failure is Failure.REGISTRATION_UNDECRYPTABLE
    assert len(agreed) == 2
    content = messages.registration(STRANGER, SERVER)
    message = messages.register(STRANGER, SERVER, content)
    agreed.clear()
    opened = open_asymmetric(entry(message.payload), IDENTITY)
    assert (
        open_registration(IDENTITY, opened.signer, opened.recipient, opened.inner, most_bytes=10_000).message == content
    )
    assert len(agreed) == 2
