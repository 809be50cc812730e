"""Every golden vector of a single function, and the outer layers of every recorded message."""

from base64 import b64decode
from functools import cache

import pytest

from support import vectors, wire_checks
from wakupush.model.failures import Failure
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import application, grants, payload, sealing, topics
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256, message_hash, shake256_64
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.sealing import UnsealableError

unhex = bytes.fromhex
TOPICS = [
    pytest.param(PublicKey.from_hex(entry["public_key"]), topic, id=f"{entry['key']}-{topic['kind']}")
    for entry in vectors.load("topics")["topics"]
    for topic in entry["topics"]
]


@pytest.mark.parametrize("entry", vectors.entries("keys", "keys"))
def test_key(entry):
    assert PrivateKey.from_hex(entry["private_key"]).secret.hex() == entry["private_key"]
    wire_checks.check_key(entry)


@pytest.mark.parametrize("entry", vectors.entries("keys", "keys"))
def test_key_in_each_form_is_the_same_key(entry):
    forms = (entry["public_key"], entry["compressed_public_key"], entry["author_string"])
    assert {PublicKey.from_hex(form) for form in forms} == {PrivateKey.from_hex(entry["private_key"]).public_key}


@pytest.mark.parametrize(("key", "entry"), TOPICS)
def test_topic(key, entry):
    name = {
        "personal": lambda: topics.personal_topic(key),
        "partitioned": lambda: topics.partitioned_topic(key),
        "contact_code": lambda: topics.contact_code_topic(key),
        "query": lambda: topics.query_topics(key.key_hash)[0],
        "query_0x_as_in_the_spec_text_not_used_by_status_go": lambda: topics.query_topics(key.key_hash)[1],
    }[entry["kind"]]()
    assert name == entry["name"]
    assert topics.topic(name).hex() == entry["topic"]
    assert topics.content_topic(name) == entry["content_topic"]
    assert topics.topic_of(entry["content_topic"]) == unhex(entry["topic"])


@pytest.mark.parametrize("entry", [pytest.param(p.values[1], id=p.id) for p in TOPICS if p.values[1]["symmetric_key"]])
def test_symmetric_key(entry):
    assert topics.symmetric_key(entry["name"]).hex() == entry["symmetric_key"]


@pytest.mark.parametrize("entry", vectors.entries("hashes", "hashes"))
def test_hashes(entry):
    assert entry["text"].encode() == unhex(entry["input"])
    assert shake256_64(unhex(entry["input"])).hex() == entry["shake256_64"]
    assert keccak256(unhex(entry["input"])).hex() == entry["keccak256"]


@pytest.mark.parametrize("entry", vectors.entries("ecdh", "pairs"))
def test_shared_key(entry):
    for one, other in ("ab", "ba"):
        private = PrivateKey.from_hex(entry[f"private_key_{one}"])
        assert private.public_key.uncompressed.hex() == entry[f"public_key_{one}"]
        assert private.shared_key(PublicKey.from_hex(entry[f"public_key_{other}"])).hex() == entry["shared_key"]


@pytest.mark.parametrize("entry", vectors.entries("aes_gcm", "cases"))
def test_sealing(entry):
    key, plaintext, nonce, sealed = (unhex(entry[name]) for name in ("key", "plaintext", "nonce", "ciphertext"))
    if not entry["opens"]:
        with pytest.raises(UnsealableError):
            sealing.unseal(key, sealed)
        return
    assert sealing.unseal(key, sealed) == plaintext
    assert sealing.seal(key, plaintext, nonce) == sealed
    assert sealing.unseal(key, sealing.seal(key, plaintext)) == plaintext


@pytest.mark.parametrize("entry", vectors.entries("grants", "grants"))
def test_grant(entry):
    client, server = (PublicKey.from_hex(entry[f"{party}_public_key"]) for party in ("client", "server"))
    token, given = entry["access_token"], unhex(entry["grant"])
    assert client.compressed + server.compressed + token.encode() == unhex(entry["material"])
    assert keccak256(unhex(entry["material"])).hex() == entry["material_keccak256"]
    assert grants.is_granted(given, client, server, token) is entry["valid"]
    if entry["client_private_key"]:
        assert grants.grant(PrivateKey.from_hex(entry["client_private_key"]), server, token) == given


@pytest.mark.parametrize("entry", vectors.entries("access_tokens", "items"))
def test_item_of_allowed_key_list(entry):
    keys = {name: PrivateKey.from_hex(entry[f"{name}_private_key"]) for name in ("user", "contact", "stranger")}
    user, item, token = keys["user"].public_key, unhex(entry["item"]), entry["access_token"].encode()
    shared = keys["user"].shared_key(keys["contact"].public_key)
    assert shared.hex() == entry["shared_key"]
    assert sealing.seal(shared, token, unhex(entry["nonce"])) == item
    for reader in ("contact", "stranger"):
        if entry[f"{reader}_opens"]:
            assert sealing.unseal(keys[reader].shared_key(user), item) == token
        else:
            with pytest.raises(UnsealableError):
                sealing.unseal(keys[reader].shared_key(user), item)


@pytest.mark.parametrize("entry", vectors.entries("metadata", "messages"))
def test_metadata(entry):
    metadata, inner = unhex(entry["metadata"]), unhex(entry["inner"])
    if not entry["parses"]:
        with pytest.raises(Refused):
            application.unwrap(metadata)
        return
    message = application.unwrap(metadata)
    assert (message.inner, message.type) == (inner, entry["type"])
    assert keccak256(inner).hex() == entry["inner_keccak256"]
    assert message.message_id.hex() == entry["message_id"]
    assert message.signer == (PublicKey.from_hex(entry["signer_public_key"]) if entry["signature"] else None)
    if entry["private_key"]:
        signer = PrivateKey.from_hex(entry["private_key"])
        assert signer.sign(keccak256(inner)).hex() == entry["signature"]
        unknown_fields = metadata.removeprefix(application.wrap(entry["type"], inner, signer))
        assert len(unknown_fields) < len(metadata), "the metadata, but for fields that we do not know, is as we make it"
        assert bool(unknown_fields) == (entry["note"] == "unknown extra field")


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
    layer, content = message["payload_v1"], vectors.opened(message)
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
            vectors.opened(entry)
        assert refused.value.failure is wanted
    else:
        assert wanted in {vectors.opened(entry).data, None}


def test_payload_to_somebody_else():
    (message,) = (case.values[0] for case in vectors.messages() if "to_other_key_on_server_topic" in case.id)
    with pytest.raises(Refused) as refused:
        payload.open_asymmetric(vectors.sealed(message), PrivateKey.generate())
    assert refused.value.failure is Failure.NOT_FOR_US
