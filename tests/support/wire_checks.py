"""What each entry of vectors of the wire says of the code. Fields that an entry lacks are not asked."""

from base64 import b64decode

import pytest
from google.protobuf import json_format

from support.wire_vectors import KINDS, unhex
from wakupush.model.failures import Failure
from wakupush.protocol import application, grants, payload, sealing, segments, topics
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256, shake256_64
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.sealing import UnsealableError


def check_key(entry):
    private = PrivateKey.from_hex(entry["private_key"])
    public = private.public_key
    assert public.uncompressed.hex() == entry["public_key"]
    assert public.compressed.hex() == entry["compressed_public_key"]
    assert public.key_hash.hex() == entry["public_key_hash"]
    assert str(public) == entry["author_string"]
    assert public.author_hash.hex() == entry["author_hash"]
    assert public.partition == int(entry["partition"])


def check_topic(entry):
    assert topics.topic(entry["name"]).hex() == entry["topic"]
    assert topics.content_topic(entry["name"]) == entry["content_topic"]
    if entry["symmetric_key"]:
        assert topics.symmetric_key(entry["name"]).hex() == entry["symmetric_key"]


def check_hash(entry):
    data = entry["text"].encode()
    assert (keccak256(data).hex(), shake256_64(data).hex()) == (entry["keccak256"], entry["shake256_64"])


def check_pair(entry):
    for one, other in ("ab", "ba"):
        private = PrivateKey.from_hex(entry[f"private_key_{one}"])
        assert private.shared_key(PublicKey.from_hex(entry[f"public_key_{other}"])).hex() == entry["shared_key"]


def check_seal(entry):
    key_, sealed = unhex(entry["key"]), unhex(entry["ciphertext"])
    assert opens(key_, sealed) == (unhex(entry["plaintext"]) if entry["opens"] else None)
    if entry["opens"]:
        assert sealing.seal(key_, unhex(entry["plaintext"]), unhex(entry["nonce"])) == sealed


def opens(key_, sealed):
    try:
        return sealing.unseal(key_, sealed)
    except UnsealableError:
        return None


def check_grant(entry):
    client, server = (PublicKey.from_hex(entry[f"{party}_public_key"]) for party in ("client", "server"))
    token, given = entry["access_token"], unhex(entry["grant"])
    assert (client.compressed + server.compressed + token.encode()).hex() == entry["material"]
    assert grants.is_granted(given, client, server, token) is entry["valid"]


def check_access_token(entry):
    user = PrivateKey.from_hex(entry["user_private_key"])
    for reader in ("contact", "stranger"):
        shared = PrivateKey.from_hex(entry[f"{reader}_private_key"]).shared_key(user.public_key)
        found = opens(shared, unhex(entry["item"]))
        assert found == (entry["access_token"].encode() if entry[f"{reader}_opens"] else None)


def check_metadata(entry):
    metadata = unhex(entry["metadata"])
    if not entry["parses"]:
        with pytest.raises(Refused):
            application.unwrap(metadata)
        return
    message = application.unwrap(metadata)
    assert (message.inner.hex(), message.type, message.message_id.hex()) == (
        entry["inner"], entry["type"], entry["message_id"],
    )  # fmt: skip
    if entry["signature"]:
        assert message.signer.uncompressed.hex() == entry["signer_public_key"]


def check_payload(entry):
    sealed, key_ = unhex(entry["payload"]), unhex(entry["key"])
    is_to_a_key = entry["encryption"] == "asymmetric"
    if not entry["opens"]:
        with pytest.raises(Refused) as refused:
            payload.open_asymmetric(sealed, PrivateKey(key_))
        assert refused.value.failure is Failure.NOT_FOR_US
        return
    content = payload.open_asymmetric(sealed, PrivateKey(key_)) if is_to_a_key else payload.open_symmetric(sealed, key_)
    signer = content.signer.uncompressed.hex() if content.signer else ""
    assert (content.data.hex(), content.padding.hex(), signer) == (
        entry["data"], entry["padding"], entry["signer_public_key"],
    )  # fmt: skip
    if "decrypted" in entry:  # the reference's largest tell only what it holds
        assert payload.decode(unhex(entry["decrypted"])) == content


def check_segments(entry):
    parts = [segments.parse(unhex(part)) for part in entry["segments"]]
    assert b"".join(part.payload for part in parts).hex() == entry["whole"]
    assert {part.entire_message_hash.hex() for part in parts} == {entry["entire_message_hash"]}
    assert [(part.index, part.count) for part in parts] == [(index, len(parts)) for index in range(len(parts))]


def check_message(entry):
    sender = PrivateKey.from_hex(entry["sender_private_key"])
    waku = entry["waku_message"]
    sealed = b64decode(waku["payload"])
    if entry["recipient_private_key"]:
        content = payload.open_asymmetric(sealed, PrivateKey.from_hex(entry["recipient_private_key"]))
    else:
        content = payload.open_symmetric(sealed, topics.symmetric_key(entry["topic_name"]))
    assert content.data.hex() == entry["metadata"]
    assert content.signer == sender.public_key
    assert topics.content_topic(entry["topic_name"]) == waku["content_topic"]
    message = application.unwrap(content.data)
    assert (message.type, message.inner.hex(), message.message_id.hex()) == (
        entry["type"], entry["inner"], entry["message_id"],
    )  # fmt: skip
    kind, parse = KINDS[entry["name"]]
    inner = message.inner
    if kind == application.Type.PUSH_NOTIFICATION_REGISTRATION:
        inner = sealing.unseal(PrivateKey.from_hex(entry["recipient_private_key"]).shared_key(sender.public_key), inner)
    assert json_format.MessageToDict(parse.FromString(inner), preserving_proto_field_name=True) == entry["fields"]


#: By section.
CHECKS = {
    "keys": check_key,
    "topics": check_topic,
    "hashes": check_hash,
    "shared_keys": check_pair,
    "seals": check_seal,
    "grants": check_grant,
    "access_tokens": check_access_token,
    "metadata": check_metadata,
    "payloads": check_payload,
    "segments": check_segments,
    "conversation": check_message,
}
