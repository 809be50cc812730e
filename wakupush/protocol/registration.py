"""PushNotificationRegistration: opening, the checks in their order, the answer (71, Registering Client)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from wakupush.model.failures import Answer, Failure
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Registration, Unregistration
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration, PushNotificationRegistrationResponse
from wakupush.protocol import wire
from wakupush.protocol.errors import Refused
from wakupush.protocol.grants import is_granted
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.sealing import UnsealableError, seal, unseal
from wakupush.protocol.uuids import is_uuid

#: Bytes of a grant, which is a signature.
GRANT_BYTES: Final = 65
#: Bytes of a device token of APNs at most: 100 bytes in hex, the most that Apple's documentation allows. Today's have
#: 64. It and the topic become headers of HTTP/2, of which APNs takes 8,000 bytes in all.
APN_TOKEN_BYTES: Final = 200
#: Bytes of a topic of APNs at most: a bundle id has 155, and a suffix may follow.
APN_TOPIC_BYTES: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a registration; the defaults are this server's."""

    #: Items in a list: contacts or chats.
    list_items: int = 10_000
    #: Bytes of an item; clients have 64.
    list_item_bytes: int = 128
    #: Bytes of a device token, a topic of APNs or an access token.
    text_bytes: int = 4096
    #: Bytes in all, as protobuf: 15,000 contacts and chats.
    registration_bytes: int = 1_000_000


LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class RegistrationResponse:
    """A server's answer to a registration."""

    #: `request_id` of the registration that it answers, 64 bytes.
    request_id: bytes
    #: None for success.
    error: Answer | None


def request_id(ciphertext: bytes) -> bytes:
    """Return the SHAKE-256 (64 bytes) of the sealed registration, which the answer names."""
    return shake256_64(ciphertext)


def seal_registration(message: PushNotificationRegistration, client: PrivateKey, server: PublicKey) -> bytes:
    """Return the registration as a client sends it: AES-GCM under the ECDH key of client and server."""
    return seal(client.shared_key(server), message.SerializeToString())


def open_registration(
    ciphertext: bytes, server: PrivateKey, client: PublicKey, *, most_bytes: int
) -> PushNotificationRegistration:
    """Return the registration that `client` sealed for `server`.

    Args:
        client: the key that signed it.
        most_bytes: of the plaintext.

    Raises:
        Refused: REGISTRATION_UNDECRYPTABLE (to be discarded), REGISTRATION_TOO_LARGE, or REGISTRATION_MALFORMED if it
            is not protobuf.
    """
    try:
        plaintext = unseal(server.shared_key(client), ciphertext)
    except UnsealableError:
        raise Refused(Failure.REGISTRATION_UNDECRYPTABLE) from None
    if len(plaintext) > most_bytes:
        raise Refused(Failure.REGISTRATION_TOO_LARGE)
    return wire.decode(PushNotificationRegistration, plaintext, Failure.REGISTRATION_MALFORMED)


def check(
    message: PushNotificationRegistration,
    *,
    client: PublicKey,
    server: PublicKey,
    stored_version: int,
    limits: Limits,
) -> Registration | Unregistration:
    """Check a registration in the order that the reference's clients expect.

    Args:
        client: the key that signed it.
        server: the server that the grant must be for.
        stored_version: of this client and installation, 0 if none.
        limits: how much it may hold.

    Raises:
        Refused: the first failure.
    """
    _refuse(_name_faults(message))
    if message.version <= stored_version:
        raise Refused(Failure.VERSION_OUTDATED)
    if message.unregister:
        return Unregistration(installation_id=message.installation_id, version=message.version)
    _refuse(_access_faults(message))
    if not is_granted(message.grant, client, server, message.access_token):
        raise Refused(Failure.GRANT_INVALID)
    _refuse(device_faults(message, limits))
    return of(message)


def is_plausible(message: PushNotificationRegistration, *, limits: Limits) -> bool:
    """Return whether nothing is wrong with a registration, as far as one can tell from it alone.

    Two checks are left out: whether the version is above the stored one, and whose grant it is.

    Args:
        limits: how much it may hold.
    """
    return not any(_name_faults(message) if message.unregister else faults(message, limits))


def faults(message: PushNotificationRegistration, limits: Limits) -> Iterator[Failure]:
    """Yield the failures for which `check` would refuse a registration, in its order, without its client's key.

    Two checks are left out: whether the version is above the stored one, and whose grant it is.
    """
    yield from _name_faults(message)
    yield from _access_faults(message)
    if len(message.grant) != GRANT_BYTES:
        yield Failure.GRANT_INVALID
    yield from device_faults(message, limits)


def of(message: PushNotificationRegistration) -> Registration:
    """Return the values to store of a registration whose type of token is known."""
    token_type = TokenType(int(message.token_type))
    return Registration(
        installation_id=message.installation_id,
        version=message.version,
        token_type=token_type,
        device_token=message.device_token,
        access_token=message.access_token,
        grant=message.grant,
        enabled=message.enabled,
        apn_topic=_stored_topic(message.apn_topic),
        allow_from_contacts_only=message.allow_from_contacts_only,
        block_mentions=message.block_mentions,
        allowed_key_list=tuple(message.allowed_key_list),
        blocked_chat_list=tuple(message.blocked_chat_list),
        muted_chat_list=tuple(message.muted_chat_list),
        allowed_mentions_chat_list=tuple(message.allowed_mentions_chat_list),
    )


def _stored_topic(topic: str) -> str:
    """Return a topic that can name an app. For Firebase it means nothing else, and anything may stand there."""
    return topic if len(topic) <= APN_TOPIC_BYTES and _APN_TOPIC.fullmatch(topic) else ""


def encode_response(request_id: bytes, failure: Failure | None) -> bytes:
    """Return the PushNotificationRegistrationResponse to a registration.

    Raises:
        ValueError: the failure is answered by silence.
    """
    if failure is None:
        return PushNotificationRegistrationResponse(success=True, request_id=request_id).SerializeToString()
    error = failure.answer.value.registration
    if error is None:
        raise ValueError(f"{failure.label} is not answered")
    return PushNotificationRegistrationResponse(error=error, request_id=request_id).SerializeToString()


def parse_response(inner: bytes) -> RegistrationResponse:
    """Return a server's answer. An error that the specification does not know counts as INTERNAL_ERROR.

    Raises:
        Refused: INNER_MALFORMED.
    """
    message = wire.decode(PushNotificationRegistrationResponse, inner, Failure.INNER_MALFORMED)
    error = None if message.success else _ERRORS.get(message.error, Answer.INTERNAL_ERROR)
    return RegistrationResponse(message.request_id, error)


_ERRORS = {answer.value.registration: answer for answer in Answer if answer.value.registration is not None}


# gorush pastes the device token into the path of the request to APNs, unescaped, and the topic into a header.
_LEAVES_PATH = re.compile(r"[\x00-\x20\x7f-\xa0/?#%\s]|\.\.")
_APN_TOPIC = re.compile(r"[\x21-\x7e]+", re.ASCII)


def _refuse(faults: Iterator[Failure]) -> None:
    if failure := next(faults, None):
        raise Refused(failure)


def _name_faults(message: PushNotificationRegistration) -> Iterator[Failure]:
    if message.version == 0:
        yield Failure.VERSION_ZERO
    if not is_uuid(message.installation_id) or "\0" in message.installation_id:
        yield Failure.INSTALLATION_ID_INVALID


def _access_faults(message: PushNotificationRegistration) -> Iterator[Failure]:
    if not is_uuid(message.access_token) or "\0" in message.access_token:
        yield Failure.ACCESS_TOKEN_INVALID


def device_faults(message: PushNotificationRegistration, limits: Limits = LIMITS) -> Iterator[Failure]:
    """Yield what a server finds wrong with the device of a registration, and with its size."""
    if not message.device_token or "\0" in message.device_token:
        yield Failure.DEVICE_TOKEN_INVALID
    token_type = int(message.token_type)
    if token_type not in set(TokenType):
        yield Failure.TOKEN_TYPE_UNSUPPORTED
    if token_type == TokenType.APN:
        if _LEAVES_PATH.search(message.device_token):
            yield Failure.DEVICE_TOKEN_INVALID
        if not _APN_TOPIC.fullmatch(message.apn_topic):
            yield Failure.APN_TOPIC_INVALID
    if _is_too_large(message, limits):
        yield Failure.REGISTRATION_TOO_LARGE


def _is_too_large(message: PushNotificationRegistration, limits: Limits) -> bool:
    if message.ByteSize() > limits.registration_bytes:
        return True
    lists: tuple[Iterable[bytes], ...] = (
        message.allowed_key_list,
        message.blocked_chat_list,
        message.muted_chat_list,
        message.allowed_mentions_chat_list,
    )
    is_apn = int(message.token_type) == TokenType.APN
    texts = (
        (message.access_token, limits.text_bytes),
        (message.device_token, min(limits.text_bytes, APN_TOKEN_BYTES) if is_apn else limits.text_bytes),
        (message.apn_topic, min(limits.text_bytes, APN_TOPIC_BYTES) if is_apn else limits.text_bytes),
    )
    return any(len(text.encode()) > most for text, most in texts) or any(
        len(items) > limits.list_items or any(len(item) > limits.list_item_bytes for item in items)
        for items in map(list, lists)
    )
