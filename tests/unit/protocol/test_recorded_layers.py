"""Every layer of every recorded message, read and written."""

import dataclasses
from functools import partial

import pytest
from google.protobuf.message import Message

from support import vectors
from wakupush.model.failures import Failure
from wakupush.pb.application_metadata_pb2 import ProtocolMessage
from wakupush.pb.push_notification_pb2 import (
    ContactCodeAdvertisement,
    PushNotificationQuery,
    PushNotificationQueryResponse,
    PushNotificationRegistrationResponse,
    PushNotificationRequest,
    PushNotificationResponse,
)
from wakupush.protocol import (
    application,
    query,
    registration,
    request,
    sealing,
)
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey

unhex = bytes.fromhex
open_registration = partial(registration.open_registration, most_bytes=1_000_000)
INNER = {
    Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE: PushNotificationRegistrationResponse,
    Type.PUSH_NOTIFICATION_QUERY: PushNotificationQuery,
    Type.PUSH_NOTIFICATION_QUERY_RESPONSE: PushNotificationQueryResponse,
    Type.PUSH_NOTIFICATION_REQUEST: PushNotificationRequest,
    Type.PUSH_NOTIFICATION_RESPONSE: PushNotificationResponse,
}
PARTIES = {public: key for scenario in vectors.SCENARIOS for public, key in vectors.private_keys(scenario).items()}
LAYERED = vectors.messages(inside="application")


def having(*names):
    return [case for case in LAYERED if all(name in case.values[0]["application"] for name in names)]


def as_recorded(value):
    """Return a protobuf message as the vectors write it, without the names beside the enums' numbers."""
    match value:
        case Message():
            return {field.name: as_recorded(getattr(value, field.name)) for field in value.DESCRIPTOR.fields}
        case bytes():
            return value.hex()
        case str() | int():
            return value
    return [as_recorded(entry) for entry in value]


def without_names(recorded):
    match recorded:
        case dict():
            return {name: without_names(value) for name, value in recorded.items() if not name.endswith("_name")}
        case list():
            return [without_names(entry) for entry in recorded]
    return recorded


@pytest.mark.parametrize("message", having("message_id"))
def test_application_layer(message):
    layer, content = message["application"], vectors.open_message(message)
    if "protocol_message" in layer:
        content = dataclasses.replace(content, data=ProtocolMessage.FromString(content.data).public_message)
    assert content.data.hex() == layer["metadata"]
    opened = application.read(content)
    assert (opened.type, opened.inner.hex()) == (layer["type"], layer["inner"])
    assert keccak256(opened.inner).hex() == layer["inner_keccak256"]
    assert opened.message_id.hex() == layer["message_id"]
    signer = layer["signer_public_key"] or message["payload_v1"]["signer_public_key"]
    assert opened.signer.uncompressed.hex() == signer
    if layer["signature"]:
        assert application.wrap(layer["type"], opened.inner, PARTIES[signer]).hex() == layer["metadata"]


@pytest.mark.parametrize("message", [case for case in LAYERED if "message_id" not in case.values[0]["application"]])
def test_application_layer_that_is_none(message):
    layer, content = message["application"], vectors.open_message(message)
    if "segment" in layer:
        segment = application.read(content)
        assert as_recorded_segment(segment) == layer["segment"]
        return
    with pytest.raises(Refused) as refused:
        application.read(content)
    wanted = Failure.SIGNATURE_INVALID if "signature_error" in layer else Failure.METADATA_MALFORMED
    assert refused.value.failure is wanted


def as_recorded_segment(segment):
    return {
        "entire_message_hash": segment.entire_message_hash.hex(),
        "index": segment.index,
        "segments_count": segment.count,
        "payload": segment.payload.hex(),
    }


@pytest.mark.parametrize("message", having("registration"))
def test_registration(message):
    layer = message["application"]["registration"]
    inner = unhex(message["application"]["inner"])
    assert registration.request_id(inner).hex() == layer["request_id"]
    if "shared_key" not in layer:
        return
    to, sender = (message["payload_v1"]["recipient_private_key"], message["application"]["signer_public_key"])
    server, client = PrivateKey.from_hex(to), PublicKey.from_hex(sender or message["payload_v1"]["signer_public_key"])
    assert server.shared_key(client).hex() == layer["shared_key"]
    if "fields" not in layer:
        wanted = Failure.REGISTRATION_MALFORMED if "plaintext" in layer else Failure.REGISTRATION_UNDECRYPTABLE
        with pytest.raises(Refused) as refused:
            open_registration(inner, server, client)
        assert refused.value.failure is wanted
        return
    opened = open_registration(inner, server, client)
    assert as_recorded(opened) == without_names(layer["fields"])
    assert opened.SerializeToString().hex() == layer["plaintext"]
    assert sealing.seal(unhex(layer["shared_key"]), unhex(layer["plaintext"]), unhex(layer["nonce"])) == inner


@pytest.mark.parametrize("message", having("fields"))
def test_inner_message(message):
    layer = message["application"]
    inner, recorded = unhex(layer["inner"]), without_names(layer["fields"])
    if layer["type"] == Type.CONTACT_CODE_ADVERTISEMENT:
        parsed = ContactCodeAdvertisement.FromString(inner)
        assert as_recorded(parsed)["push_notification_info"] == recorded["push_notification_info"]
    else:
        parsed = INNER[layer["type"]].FromString(inner)
        assert as_recorded(parsed) == recorded
    assert parsed.SerializeToString() == inner


def sent_as(message_type):
    return [case for case in having("inner") if case.values[0]["application"]["type"] == message_type]


@pytest.mark.parametrize("message", sent_as(Type.PUSH_NOTIFICATION_QUERY))
def test_parse_query(message):
    layer = message["application"]
    keys = layer["fields"]["public_keys"] if "fields" in layer else []
    wanted = tuple(unhex(key) for key in dict.fromkeys(keys) if len(key) == 2 * query.KEY_HASH_BYTES)
    if wanted:
        assert query.parse_query(unhex(layer["inner"]), most_keys=len(keys)) == wanted
        return
    with pytest.raises(Refused) as refused:
        query.parse_query(unhex(layer["inner"]), most_keys=1000)
    assert refused.value.failure is (Failure.QUERY_WITHOUT_KEYS if "fields" in layer else Failure.INNER_MALFORMED)


@pytest.mark.parametrize("message", sent_as(Type.PUSH_NOTIFICATION_REQUEST))
def test_parse_request(message):
    layer = message["application"]
    fields = without_names(layer.get("fields", {}))
    if fields.get("message_id"):
        parsed = request.parse_request(unhex(layer["inner"]), most_items=100)
        assert parsed.message_id.hex() == fields["message_id"]
        assert [as_recorded_item(item) for item in parsed.items] == [
            item for item in fields["requests"] if item["type"]
        ]
        return
    with pytest.raises(Refused) as refused:
        request.parse_request(unhex(layer["inner"]), most_items=100)
    assert refused.value.failure is (Failure.MESSAGE_ID_MISSING if fields else Failure.INNER_MALFORMED)


def as_recorded_item(item):
    fields = dataclasses.asdict(item)
    fields["public_key"] = fields.pop("key_hash")
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}
