"""The project's own vectors of the wire, and how they are made.

Sections and fields are named as those of tests/vectors where there are such.
All keys come of names, and all randomness of a seed: made again they are the same.
"""

import json
import random
import secrets
from base64 import b64encode
from pathlib import Path

from google.protobuf import json_format

from wakupush.devnet import messages as devnet
from wakupush.pb import push_notification_pb2 as pb
from wakupush.protocol import application, envelopes, grants, payload, query, registration, sealing, segments, topics
from wakupush.protocol.hashing import keccak256, message_hash, shake256_64
from wakupush.protocol.keys import PrivateKey

FILE = Path(__file__).parents[2] / "docs" / "reference" / "wire" / "vectors.json"
SHARD = "/waku/2/rs/16/32"
TIME = 1_700_000_000_000_000_000
TOKEN = "0d1b0f3c-5d6d-4b0e-9c64-2f0e8f6f1a52"
unhex = bytes.fromhex


def key(name):
    return PrivateKey(keccak256(f"wakupush wire {name}".encode()))


CLIENT, SERVER, ASKER, CONTACT, STRANGER = map(key, ("client", "server", "asker", "contact", "stranger"))
#: A pair whose shared key begins with a zero, which implementations with big integers lose.
ODD = next(
    other for number in range(10_000) if CLIENT.shared_key((other := key(f"odd {number}")).public_key).startswith(b"\0")
)


def make():
    """Return all vectors; what they need of chance comes of one seed."""
    chance = random.Random(71)
    real, secrets.token_bytes = secrets.token_bytes, chance.randbytes
    try:
        return {
            "keys": [make_key(name) for name in ("client", "server", "asker", "contact")],
            "topics": list(make_topics()),
            "hashes": [make_hash(text) for text in ("", "a chat", str(CLIENT.public_key))],
            "shared_keys": [make_pair(CLIENT, SERVER), make_pair(CLIENT, ODD)],
            "seals": list(make_seals(chance)),
            "grants": list(make_grants()),
            "access_tokens": [make_access_token()],
            "metadata": list(make_metadata()),
            "payloads": list(make_payloads()),
            "segments": [make_segments(chance)],
            "conversation": list(make_conversation(chance)),
        }
    finally:
        secrets.token_bytes = real


def make_key(name):
    private = key(name)
    public = private.public_key
    return {
        "name": name,
        "private_key": private.secret.hex(),
        "public_key": public.uncompressed.hex(),
        "compressed_public_key": public.compressed.hex(),
        "public_key_hash": public.key_hash.hex(),
        "author_string": str(public),
        "author_hash": public.author_hash.hex(),
        "partition": public.partition,
    }


def make_topics():
    names = {
        "personal": topics.personal_topic(SERVER.public_key),
        "partitioned": topics.partitioned_topic(SERVER.public_key),
        "query": topics.query_topics(CLIENT.public_key.key_hash)[0],
        "query with 0x": topics.query_topics(CLIENT.public_key.key_hash)[1],
        "contact code": topics.contact_code_topic(CLIENT.public_key),
    }
    for kind, name in names.items():
        is_shared = kind not in {"personal", "partitioned"}
        yield {
            "kind": kind,
            "name": name,
            "topic": topics.topic(name).hex(),
            "content_topic": topics.content_topic(name),
            "symmetric_key": topics.symmetric_key(name).hex() if is_shared else "",
        }


def make_hash(text):
    data = text.encode()
    return {"text": text, "keccak256": keccak256(data).hex(), "shake256_64": shake256_64(data).hex()}


def make_pair(one, other):
    return {
        "private_key_a": one.secret.hex(),
        "public_key_a": one.public_key.uncompressed.hex(),
        "private_key_b": other.secret.hex(),
        "public_key_b": other.public_key.uncompressed.hex(),
        "shared_key": one.shared_key(other.public_key).hex(),
    }


def make_seals(chance):
    key = CLIENT.shared_key(SERVER.public_key)
    for length in (0, 1, 36):
        plaintext, nonce = chance.randbytes(length), chance.randbytes(12)
        ciphertext = sealing.seal(key, plaintext, nonce)
        case = {"key": key.hex(), "plaintext": plaintext.hex(), "nonce": nonce.hex()}
        yield {"note": f"{length} bytes", **case, "ciphertext": ciphertext.hex(), "opens": True}
    other = ciphertext[:-1] + bytes([ciphertext[-1] ^ 1])
    yield {"note": "tag changed", **case, "ciphertext": other.hex(), "opens": False}


def make_grants():
    good = grants.grant(CLIENT, SERVER.public_key, TOKEN)
    for note, proof, token, valid in (
        ("good", good, TOKEN, True),
        ("of somebody else", grants.grant(STRANGER, SERVER.public_key, TOKEN), TOKEN, False),
        ("for another server", grants.grant(CLIENT, ASKER.public_key, TOKEN), TOKEN, False),
        ("the token in upper case", good, TOKEN.upper(), False),
        ("recovery id as 27 and 28", good[:-1] + bytes([good[-1] + 27]), TOKEN, False),
    ):
        material = CLIENT.public_key.compressed + SERVER.public_key.compressed + token.encode()
        yield {
            "note": note,
            "client_public_key": CLIENT.public_key.uncompressed.hex(),
            "server_public_key": SERVER.public_key.uncompressed.hex(),
            "access_token": token,
            "material": material.hex(),
            "material_keccak256": keccak256(material).hex(),
            "grant": proof.hex(),
            "valid": valid,
        }


def make_access_token():
    key = CLIENT.shared_key(CONTACT.public_key)
    item = sealing.seal(key, TOKEN.encode())
    return {
        "user_private_key": CLIENT.secret.hex(),
        "contact_private_key": CONTACT.secret.hex(),
        "stranger_private_key": STRANGER.secret.hex(),
        "access_token": TOKEN,
        "shared_key": key.hex(),
        "nonce": item[:12].hex(),
        "item": item.hex(),
        "contact_opens": True,
        "stranger_opens": False,
    }


def make_metadata():
    inner = query.encode_query([CLIENT.public_key.key_hash])
    good = application.wrap(application.Type.PUSH_NOTIFICATION_QUERY, inner, ASKER)
    for note, metadata, parses in (
        ("signed", good, True),
        ("signature cut", good.replace(b"\x0a\x41", b"\x0a\x03", 1), False),
    ):
        yield {
            "note": note,
            "private_key": ASKER.secret.hex(),
            "signer_public_key": ASKER.public_key.uncompressed.hex(),
            "type": int(application.Type.PUSH_NOTIFICATION_QUERY),
            "inner": inner.hex(),
            "inner_keccak256": keccak256(inner).hex(),
            "signature": ASKER.sign(keccak256(inner)).hex(),
            "metadata": metadata.hex(),
            "message_id": keccak256(ASKER.public_key.uncompressed + metadata).hex(),
            "parses": parses,
        }


def make_payloads():
    topic_key = topics.symmetric_key("a topic")
    for length, signed in ((0, False), (0, True), (189, True), (190, True), (254, False), (255, False), (300, True)):
        data = bytes(number % 256 for number in range(length))
        for encryption in ("asymmetric", "symmetric"):
            signer = ASKER if signed else None
            if encryption == "asymmetric":
                ciphertext, place = payload.seal_asymmetric(data, SERVER.public_key, signer), SERVER.secret
            else:
                ciphertext, place = payload.seal_symmetric(data, topic_key, signer), topic_key
            plaintext = decrypt(encryption, ciphertext, place)
            content = payload.decode(plaintext)
            yield {
                "note": f"{encryption}, {length} bytes, {'signed' if signed else 'unsigned'}",
                "encryption": encryption,
                "key": place.hex(),
                "payload": ciphertext.hex(),
                "decrypted": plaintext.hex(),
                "flags": plaintext[0],
                "data": data.hex(),
                "padding": content.padding.hex(),
                "signature": plaintext[-65:].hex() if signed else "",
                "signer_public_key": ASKER.public_key.uncompressed.hex() if signed else "",
                "opens": True,
            }
    damaged_payload = bytearray(payload.seal_asymmetric(b"data", SERVER.public_key, ASKER))
    damaged_payload[-1] ^= 1
    yield {
        "note": "tag changed",
        "encryption": "asymmetric",
        "key": SERVER.secret.hex(),
        "payload": damaged_payload.hex(),
        "opens": False,
    }


def decrypt(encryption, ciphertext, key_):
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    from wakupush.protocol import ecies  # noqa: PLC0415

    if encryption == "asymmetric":
        return ecies.decrypt(ciphertext, PrivateKey(key_))
    return AESGCM(key_).decrypt(ciphertext[-12:], ciphertext[:-12], None)


def make_segments(chance):
    whole = chance.randbytes(250)
    return {
        "whole": whole.hex(),
        "entire_message_hash": keccak256(whole).hex(),
        "most_bytes": 100,
        "segments": [part.hex() for part in segments.split(whole, 100)],
    }


def make_conversation(chance):
    """One message of each type, as the reader of its content needs it, the later ones about the first."""
    server, user = SERVER.public_key, CLIENT.public_key.key_hash
    content = devnet.registration(
        CLIENT, server, access_token=TOKEN, installation_id="5a6baa5b-87a5-6d24-7b15-18303ea8c3d9",
        device_token=chance.randbytes(32).hex(),
    )  # fmt: skip
    ciphertext = registration.seal_registration(content, CLIENT, server)
    yield scenario_message("registration", CLIENT, SERVER, ciphertext, content)
    response = pb.PushNotificationRegistrationResponse(success=True, request_id=shake256_64(ciphertext))
    yield scenario_message("registration response", SERVER, CLIENT, response.SerializeToString(), response)
    query_message = pb.PushNotificationQuery(public_keys=[user])
    question = scenario_message("query", ASKER, None, query_message.SerializeToString(), query_message)
    yield question
    info = pb.PushNotificationQueryInfo(
        access_token=TOKEN, installation_id=content.installation_id, public_key=user, grant=content.grant, version=1
    )
    answer = pb.PushNotificationQueryResponse(info=[info], message_id=unhex(question["message_id"]), success=True)
    yield scenario_message("query response", SERVER, ASKER, answer.SerializeToString(), answer)
    item = pb.PushNotification(
        access_token=TOKEN, chat_id=shake256_64(b"a chat"), public_key=user, installation_id=content.installation_id,
        message=b"what the messenger encrypted", type=pb.PushNotification.MESSAGE, author=ASKER.public_key.author_hash,
    )  # fmt: skip
    request = pb.PushNotificationRequest(requests=[item], message_id=chance.randbytes(32))
    yield scenario_message("push request", ASKER, SERVER, request.SerializeToString(), request)
    report = pb.PushNotificationReport(success=True, public_key=user, installation_id=content.installation_id)
    reports = pb.PushNotificationResponse(message_id=request.message_id, reports=[report])
    yield scenario_message("push response", SERVER, ASKER, reports.SerializeToString(), reports)
    server_info = pb.PushNotificationQueryInfo(server_public_key=server.compressed)
    server_info.MergeFrom(info)
    advertisement = pb.ContactCodeAdvertisement(push_notification_info=[server_info])
    yield scenario_message("advertisement", CLIENT, None, advertisement.SerializeToString(), advertisement)


TYPES = {
    "registration": 16,
    "registration response": 17,
    "query": 18,
    "query response": 19,
    "push request": 20,
    "push response": 21,
    "advertisement": 15,
}


def scenario_message(name, sender, recipient, inner, content):
    """Return a message with all its layers; without a recipient it is on a topic that the client's key gives."""
    kind = TYPES[name]
    public = {18: CLIENT.public_key.key_hash.hex(), 15: topics.contact_code_topic(CLIENT.public_key)}
    topic_name = topics.partitioned_topic(recipient.public_key) if recipient else public[kind]
    metadata = application.wrap(kind, inner, sender)
    if recipient:
        [message] = envelopes.to_key(sender, recipient.public_key, kind, inner, timestamp=TIME)
    else:
        topic_key = topics.symmetric_key(topic_name)
        data = application.wrap_public(metadata) if kind == 15 else metadata
        message = envelopes.to_topic(sender, topic_name, topic_key, data, timestamp=TIME)
    return {
        "name": name,
        "type": kind,
        "sender_private_key": sender.secret.hex(),
        "recipient_private_key": recipient.secret.hex() if recipient else "",
        "topic_name": topic_name,
        "fields": json_format.MessageToDict(content, preserving_proto_field_name=True),
        "inner": inner.hex(),
        "metadata": metadata.hex(),
        "message_id": keccak256(sender.public_key.uncompressed + metadata).hex(),
        "waku_message": {
            "pubsub_topic": SHARD,
            "content_topic": message.content_topic,
            "payload": b64encode(message.payload).decode(),
            "version": message.version,
            "timestamp": message.timestamp,
            "message_hash": message_hash(SHARD, message).hex(),
        },
    }


def text(vectors):
    return json.dumps(vectors, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(make()))
