"""Every golden vector of a single function, and the outer layers of every recorded message."""

from base64 import b64decode
from functools import cache

import pytest

from support import vectors
from wakupush.model.failures import Failure
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import payload, topics
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey, PublicKey

unhex = bytes.fromhex


@pytest.mark.parametrize("message", vectors.messages())
def test_waku_message(message):
    waku = message["waku_message"]
    built = WakuMessage(
        payload=b64decode(waku["payload"]),
        content_topic=waku["content_topic"],
        version=waku["version"],
        timestamp=waku["timestamp"],
        meta=b64decode(waku["meta"]),
        ephemeral=waku["ephemeral"],
    )
    assert message_hash(waku["pubsub_topic"], built).hex() == waku["message_hash"]
    assert topics.content_topic(message["topic_name"]) == waku["content_topic"]
    assert topics.topic_of(waku["content_topic"]) == topics.topic(message["topic_name"])


symmetric_key = cache(topics.symmetric_key)


def odd(case):
    return "data" not in case.values[0]["payload_v1"]


@pytest.mark.parametrize("message", [case for case in vectors.messages() if not odd(case)])
def test_payload(message):
    layer, content = message["payload_v1"], vectors.open_message(message)
    data, padding, signature = (unhex(layer[name]) for name in ("data", "padding", "signature"))
    signer = PublicKey.from_hex(layer["signer_public_key"]) if signature else None
    assert (content.data, content.signer, content.padding) == (data, signer, padding)

    # The same again by us: as long, with the same flags and size in front.
    again = payload.encode(data, PrivateKey.generate() if signature else None)
    head = again[: 1 + (layer["flags"] & 3)]
    assert head[0] == layer["flags"]
    assert len(again) == len(head + data + padding + signature)
    assert len(again) % payload.PADDED_TO == 0
    assert payload.decode(again).data == data
    if "decrypted" in layer:
        assert unhex(layer["decrypted"]) == head + data + padding + signature
        assert payload.decode(unhex(layer["decrypted"])) == content

    if layer["encryption"] == "symmetric":
        key = unhex(layer["symmetric_key"])
        assert key == symmetric_key(message["topic_name"])
        resealed = payload.open_symmetric(payload.seal_symmetric(data, key), key)
    else:
        recipient = PrivateKey.from_hex(layer["recipient_private_key"])
        assert recipient.public_key.uncompressed.hex() == layer["recipient_public_key"]
        resealed = payload.open_asymmetric(payload.seal_asymmetric(data, recipient.public_key), recipient)
    assert (resealed.data, resealed.signer) == (data, None)


#: The faulty and odd messages of payload_v1.json by their note: the failure, or the data.
ODD = {
    "ECIES tag changed": Failure.NOT_FOR_US,
    "ECIES first byte is not 4": Failure.NOT_FOR_US,
    "ECIES cut to 97 bytes": Failure.NOT_FOR_US,
    "empty": Failure.NOT_FOR_US,
    "random bytes": Failure.NOT_FOR_US,
    "inner: size field says more than there is": Failure.PAYLOAD_MALFORMED,
    "inner: signed flag but too short": Failure.PAYLOAD_MALFORMED,
    "inner: one byte": Failure.PAYLOAD_MALFORMED,
    "inner: unparsable signature": Failure.SIGNATURE_INVALID,
    "inner: size of size 0, no data": b"",
    # A payload does not tell its version: who reads the WakuMessage has to look at it.
    "version 2": None,
}


@pytest.mark.parametrize("entry", [case for case in vectors.entries("payload_v1", "messages") if odd(case)])
def test_odd_payload(entry):
    wanted = ODD[entry["note"]]
    assert (entry["waku_message"]["version"] == payload.VERSION) == (wanted is not None)
    assert entry["opens"] == (wanted == b"")
    if isinstance(wanted, Failure):
        with pytest.raises(Refused) as refused:
            vectors.open_message(entry)
        assert refused.value.failure is wanted
    else:
        assert wanted in {vectors.open_message(entry).data, None}


def test_payload_to_somebody_else():
    (message,) = (case.values[0] for case in vectors.messages() if "to_other_key_on_server_topic" in case.id)
    with pytest.raises(Refused) as refused:
        payload.open_asymmetric(vectors.ciphertext_of(message), PrivateKey.generate())
    assert refused.value.failure is Failure.NOT_FOR_US
