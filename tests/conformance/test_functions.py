"""The files of single functions in any set of vectors."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import nullcontext

import pytest

from conformance import sets
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import application, grants, payload, sealing, topics
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256, message_hash, shake256_64
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.sealing import UnsealableError

unhex = bytes.fromhex
private, public = PrivateKey.from_hex, PublicKey.from_hex


def check_key(entry):
    key = private(entry["private_key"])
    assert key.public_key.uncompressed.hex() == entry["public_key"]
    assert key.public_key.compressed.hex() == entry["compressed_public_key"]
    assert key.public_key.key_hash.hex() == entry["public_key_hash"]
    assert str(key.public_key) == entry["author_string"]
    assert key.public_key.author_hash.hex() == entry["author_hash"]
    assert key.public_key.partition == int(entry["partition"])
    assert public(entry["compressed_public_key"]) == public(entry["public_key"]) == key.public_key


def check_topics(entry):
    key = public(entry["public_key"])
    query, query_0x = topics.query_topics(key.key_hash)
    names = {
        "personal": topics.personal_topic(key),
        "partitioned": topics.partitioned_topic(key),
        "contact_code": topics.contact_code_topic(key),
        "query": query,
        "query_0x_as_in_the_spec_text_not_used_by_status_go": query_0x,
    }
    for topic in entry["topics"]:
        assert topic["name"] == names[topic["kind"]]
        assert topics.topic(topic["name"]).hex() == topic["topic"]
        assert topics.content_topic(topic["name"]) == topic["content_topic"]
        if topic["symmetric_key"]:
            assert topics.symmetric_key(topic["name"]).hex() == topic["symmetric_key"]


def check_hashes(entry):
    assert entry["text"].encode().hex() == entry["input"]
    assert shake256_64(unhex(entry["input"])).hex() == entry["shake256_64"]
    assert keccak256(unhex(entry["input"])).hex() == entry["keccak256"]


def check_shared_key(entry):
    for one, other in ("ab", "ba"):
        key = private(entry[f"private_key_{one}"])
        assert key.public_key == public(entry[f"public_key_{one}"])
        assert key.shared_key(public(entry[f"public_key_{other}"])).hex() == entry["shared_key"]


def check_sealing(entry):
    key, sealed = unhex(entry["key"]), unhex(entry["ciphertext"])
    with nullcontext() if entry["opens"] else pytest.raises(UnsealableError):
        assert sealing.unseal(key, sealed).hex() == entry["plaintext"]
    if entry["opens"]:
        assert sealing.seal(key, unhex(entry["plaintext"]), unhex(entry["nonce"])) == sealed


def check_grant(entry):
    client, server = public(entry["client_public_key"]), public(entry["server_public_key"])
    token, signature = entry["access_token"], unhex(entry["grant"])
    assert (client.compressed + server.compressed + token.encode()).hex() == entry["material"]
    assert keccak256(unhex(entry["material"])).hex() == entry["material_keccak256"]
    assert grants.is_granted(signature, client, server, token) is entry["valid"]
    if entry["client_private_key"]:
        assert grants.grant(private(entry["client_private_key"]), server, token) == signature


def check_access_token(entry):
    user, token, item = private(entry["user_private_key"]), entry["access_token"].encode(), unhex(entry["item"])
    shared = user.shared_key(private(entry["contact_private_key"]).public_key)
    assert shared.hex() == entry["shared_key"]
    assert sealing.seal(shared, token, unhex(entry["nonce"])) == item
    for reader in ("contact", "stranger"):
        key = private(entry[f"{reader}_private_key"]).shared_key(user.public_key)
        with nullcontext() if entry[f"{reader}_opens"] else pytest.raises(UnsealableError):
            assert sealing.unseal(key, item) == token


def check_metadata(entry):
    metadata = unhex(entry["metadata"])
    if not entry["parses"]:
        with pytest.raises(Refused):
            application.unwrap(metadata)
        return
    message = application.unwrap(metadata)
    assert message.type == entry["type"]
    assert message.inner.hex() == entry["inner"]
    assert keccak256(message.inner).hex() == entry["inner_keccak256"]
    assert message.message_id.hex() == entry["message_id"]
    assert message.signer == (public(entry["signer_public_key"]) if entry["signature"] else None)
    if entry["private_key"]:
        signer = private(entry["private_key"])
        assert signer.sign(keccak256(message.inner)).hex() == entry["signature"]
        # Fields that we do not know follow.
        assert metadata.startswith(application.wrap(entry["type"], message.inner, signer))


def check_payload(entry):
    waku, layer = entry["waku_message"], entry["payload_v1"]
    message = WakuMessage(
        payload=b64decode(waku["payload"]),
        content_topic=waku["content_topic"],
        version=waku["version"],
        timestamp=waku["timestamp"],
        meta=b64decode(waku["meta"]),
        ephemeral=waku["ephemeral"],
    )
    assert message_hash(waku["pubsub_topic"], message).hex() == waku["message_hash"]
    assert topics.content_topic(entry["topic_name"]) == waku["content_topic"]
    if not entry["opens"]:
        # Who reads a message looks at its version before the payload.
        with nullcontext() if message.version != payload.VERSION else pytest.raises(Refused):
            _open(message, layer)
        return
    opened = _open(message, layer)
    assert message.version == payload.VERSION
    assert opened.data.hex() == layer.get("data", "")
    assert opened.signer == (public(layer["signer_public_key"]) if layer.get("signature") else None)
    if "data" in layer:
        again = payload.encode(opened.data, PrivateKey.generate() if opened.signer else None)
        head = 1 + (layer["flags"] & 3)
        assert again[0] == layer["flags"]
        assert len(again) == head + sum(len(unhex(layer[part])) for part in ("data", "padding", "signature"))
        assert len(again) % payload.PADDED_TO == 0


def _open(message, layer):
    if layer["encryption"] == "symmetric":
        return payload.open_symmetric(message.payload, unhex(layer["symmetric_key"]))
    return payload.open_asymmetric(message.payload, private(layer["recipient_private_key"]))


#: By file: where its entries are, and what checks each.
FILES = {
    "keys": ("keys", check_key),
    "topics": ("topics", check_topics),
    "hashes": ("hashes", check_hashes),
    "ecdh": ("pairs", check_shared_key),
    "aes_gcm": ("cases", check_sealing),
    "grants": ("grants", check_grant),
    "access_tokens": ("items", check_access_token),
    "metadata": ("messages", check_metadata),
    "payload_v1": ("messages", check_payload),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directories = sets.chosen(metafunc.config)
    cases = []
    for file, (list_name, check) in FILES.items():
        paths = [path for each in directories if (path := each / f"{file}.json").exists()]
        entries = [entry for path in paths for entry in json.loads(path.read_text())[list_name]]
        for number, entry in enumerate(entries):
            name = entry.get("name") or entry.get("note") or ""
            cases.append(pytest.param(check, entry, id=f"{file}-{number:02}-{name}".rstrip("-")))
        if not entries:
            missing = pytest.mark.skip(reason=f"no {file}.json in {', '.join(map(str, directories))}")
            cases.append(pytest.param(check, None, id=f"{file}-missing", marks=missing))
    metafunc.parametrize(("check", "entry"), cases)


def test_function(check, entry):
    check(entry)
