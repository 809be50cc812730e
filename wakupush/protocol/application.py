"""62/STATUS-PAYLOADS: ApplicationMetadataMessage, the content of a payload."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from wakupush.model.failures import Failure
from wakupush.pb.application_metadata_pb2 import ApplicationMetadataMessage, ProtocolMessage
from wakupush.protocol import segments, wire
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey, recover
from wakupush.protocol.payload import Payload
from wakupush.protocol.sealing import UnsealableError, seal, unseal
from wakupush.protocol.secp256k1_constants import UNCOMPRESSED_BYTES

Type = ApplicationMetadataMessage.Type

#: Of a sealed opened message: where its signer begins and ends, behind its type and its id.
_TYPE_BYTES: Final = 4
_SIGNER_START: Final = _TYPE_BYTES + 32
_SIGNER_END: Final = _SIGNER_START + UNCOMPRESSED_BYTES


@dataclass(frozen=True, slots=True)
class ApplicationMessage:
    """An ApplicationMetadataMessage whose signature was checked."""

    #: A number of `Type`, or an unknown number.
    type: int
    inner: bytes = field(repr=False)
    #: None if the message is unsigned.
    signer: PublicKey | None
    #: Keccak-256 of 65 byte signer key | ApplicationMetadataMessage, 32 bytes; of the latter alone if unsigned.
    message_id: bytes


def wrap(message_type: Type.ValueType, inner: bytes, sign_with: PrivateKey) -> bytes:
    """Return the signed ApplicationMetadataMessage of an inner message."""
    return ApplicationMetadataMessage(
        signature=sign_with.sign(keccak256(inner)), payload=inner, type=message_type
    ).SerializeToString()


def unwrap(metadata: bytes) -> ApplicationMessage:
    """Parse an ApplicationMetadataMessage and recover its signer.

    Raises:
        Refused: METADATA_MALFORMED or SIGNATURE_INVALID.
    """
    message = wire.parse(ApplicationMetadataMessage, metadata, malformed=Failure.METADATA_MALFORMED)
    if not message.signature:
        return ApplicationMessage(message.type, message.payload, None, keccak256(metadata))
    signer = recover(keccak256(message.payload), message.signature)
    return ApplicationMessage(message.type, message.payload, signer, keccak256(signer.uncompressed + metadata))


@dataclass(frozen=True, slots=True)
class Opened:
    """A message whose sender is known."""

    type: int
    inner: bytes = field(repr=False)
    #: The application layer's signer, or else the transport layer's.
    signer: PublicKey
    #: 32 bytes.
    message_id: bytes
    #: The key that it was sealed to, None if it was sealed with a shared one.
    recipient: PublicKey | None = None


def read(payload: Payload, recipient: PublicKey | None = None) -> Opened | segments.Segment:
    """Return the application message in a payload, or the segment of one.

    Args:
        recipient: see `Opened`.

    Raises:
        Refused: PAYLOAD_MALFORMED, METADATA_MALFORMED, SIGNATURE_INVALID, or SIGNATURE_MISSING if neither the
            application nor the transport layer is signed.
    """
    segment = segments.parse(payload.data)
    if segment is not None:
        return segment
    return _opened(payload, payload.data, recipient)


def _opened(payload: Payload, metadata: bytes, recipient: PublicKey | None = None) -> Opened:
    message = unwrap(metadata)
    signer = message.signer or payload.signer
    if signer is None:
        raise Refused(Failure.SIGNATURE_MISSING)
    return Opened(message.type, message.inner, signer, message.message_id, recipient)


def seal_opened(message: Opened, key: bytes, message_hash: bytes) -> bytes:
    """Return an opened message, sealed for another worker of the same server.

    A change of its form needs another name of the key: workers of two releases exchange such messages.

    Args:
        key: `Identity.opened_key`, 32 bytes.
        message_hash: of the message on the network, 32 bytes; the result is bound to it.
    """
    recipient = message.recipient.uncompressed if message.recipient else b""
    head = message.type.to_bytes(_TYPE_BYTES, "big", signed=True) + message.message_id + message.signer.uncompressed
    return seal(_key_for(message_hash, key), bytes([len(recipient)]) + recipient + head + message.inner)


def unseal_opened(sealed: bytes, key: bytes, message_hash: bytes) -> Opened | None:
    """Return the message that `seal_opened` sealed; None if it is of another message or server."""
    try:
        plain = unseal(_key_for(message_hash, key), sealed)
    except UnsealableError:
        return None
    size, rest = plain[0], plain[1:]
    recipient, rest = rest[:size], rest[size:]
    return Opened(
        int.from_bytes(rest[:_TYPE_BYTES], "big", signed=True),
        rest[_SIGNER_END:],
        PublicKey(rest[_SIGNER_START:_SIGNER_END]),
        rest[_TYPE_BYTES:_SIGNER_START],
        PublicKey(recipient) if recipient else None,
    )


def _key_for(message_hash: bytes, key: bytes) -> bytes:
    """Return a key for one message: no number of messages wears out the nonces of one key."""
    return blake2b(message_hash, key=key, digest_size=32).digest()


def wrap_public(metadata: bytes, contact_code: bytes = b"") -> bytes:
    """Return the ProtocolMessage around a public message, as clients of the reference expect advertisements.

    Args:
        contact_code: a messenger's own ProtocolMessage, serialised, with the bundles of its contact code; one message
            then carries both.
    """
    return contact_code + ProtocolMessage(public_message=metadata).SerializeToString()


def read_public(payload: Payload) -> Opened:
    """Return the public application message in a payload that holds a ProtocolMessage.

    Raises:
        Refused: METADATA_MALFORMED, SIGNATURE_INVALID, or SIGNATURE_MISSING if neither layer is signed.
    """
    return _opened(payload, wire.decode(ProtocolMessage, payload.data, Failure.METADATA_MALFORMED).public_message)
