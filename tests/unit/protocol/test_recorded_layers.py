"""The application layer of every recorded message, and every recorded registration, read and written."""

import dataclasses
from functools import partial

import pytest
from google.protobuf.message import Message

from support import vectors
from wakupush.model.failures import Failure
from wakupush.pb.application_metadata_pb2 import ProtocolMessage
from wakupush.protocol import application, registration, sealing
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey

unhex = bytes.fromhex
open_registration = partial(registration.open_registration, most_bytes=1_000_000)
PARTIES = {public: key for scenario in vectors.SCENARIOS for public, key in vectors.private_keys(scenario).items()}
LAYERED = vectors.messages()


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
    expected = Failure.SIGNATURE_INVALID if "signature_error" in layer else Failure.METADATA_MALFORMED
    assert refused.value.failure is expected


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
        expected = Failure.REGISTRATION_MALFORMED if "plaintext" in layer else Failure.REGISTRATION_UNDECRYPTABLE
        with pytest.raises(Refused) as refused:
            open_registration(inner, server, client)
        assert refused.value.failure is expected
        return
    opened = open_registration(inner, server, client)
    assert as_recorded(opened) == without_names(layer["fields"])
    assert opened.SerializeToString().hex() == layer["plaintext"]
    assert sealing.seal(unhex(layer["shared_key"]), unhex(layer["plaintext"]), unhex(layer["nonce"])) == inner
