"""PushNotificationQuery and the server's answer (71, Querying a Server)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from wakupush.model.failures import Failure
from wakupush.model.registrations import QueriedDevice
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQuery,
    PushNotificationQueryInfo,
    PushNotificationQueryResponse,
)
from wakupush.protocol import wire
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.sealing import UnsealableError, unseal
from wakupush.protocol.uuids import is_uuid

#: Bytes of the hash that names a user; keys of another length name no user.
KEY_HASH_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """A device in the answer to a query or in an advertisement. No field is checked yet."""

    #: Names the user; 64 bytes, or it names no user.
    key_hash: bytes
    installation_id: str
    version: int
    #: Empty if `allowed_key_list` is to be used.
    access_token: str = field(repr=False)
    #: The access token, sealed once for each contact.
    allowed_key_list: tuple[bytes, ...] = field(repr=False, default=())
    grant: bytes = field(repr=False)
    #: Compressed, 33 bytes; empty in answers to queries.
    server_key: bytes = b""


@dataclass(frozen=True, slots=True)
class QueryResponse:
    """A server's answer to a query."""

    #: Message id of the query that it answers, see `application.Opened.message_id`.
    message_id: bytes
    infos: tuple[Info, ...]


def encode_query(key_hashes: Iterable[bytes]) -> bytes:
    """Return the PushNotificationQuery that asks for users (hashes of 64 bytes)."""
    return PushNotificationQuery(public_keys=key_hashes).SerializeToString()


def parse_query(inner: bytes, *, most_keys: int) -> tuple[bytes, ...]:
    """Return the key hashes (64 bytes each) that a query asks for, each once.

    Raises:
        Refused: INNER_MALFORMED, QUERY_LIMIT above `most_keys`, or QUERY_WITHOUT_KEYS if no key has the right length.
    """
    keys = wire.parse(
        PushNotificationQuery,
        inner,
        malformed=Failure.INNER_MALFORMED,
        most_fields=most_keys + wire.PLAIN_FIELDS,
        too_many=Failure.QUERY_LIMIT,
    ).public_keys
    if len(keys) > most_keys:
        raise Refused(Failure.QUERY_LIMIT)
    key_hashes = tuple(dict.fromkeys(key for key in keys if len(key) == KEY_HASH_BYTES))
    if not key_hashes:
        raise Refused(Failure.QUERY_WITHOUT_KEYS)
    return key_hashes


def reveal(device: QueriedDevice) -> PushNotificationQueryInfo:
    """Return the info about a device that a query gets: at most one of access token and allowed_key_list.

    A query learns no more than the specification's disclosed data. A device for contacts only that has no contacts
    reveals neither.
    """
    info = PushNotificationQueryInfo(
        public_key=device.key_hash,
        installation_id=device.installation_id,
        grant=device.grant,
        version=device.version,
    )
    if device.allow_from_contacts_only:
        info.allowed_key_list.extend(device.allowed_key_list)
    else:
        info.access_token = device.access_token
    return info


def encode_response(message_id: bytes, devices: Iterable[QueriedDevice]) -> bytes:
    """Return the PushNotificationQueryResponse to the query with this application message id (32 bytes).

    Raises:
        Refused: NOTHING_KNOWN: without information a response MUST NOT be sent.
    """
    infos = [reveal(device) for device in devices]
    if not infos:
        raise Refused(Failure.NOTHING_KNOWN)
    return PushNotificationQueryResponse(info=infos, message_id=message_id, success=True).SerializeToString()


def encode_info(info: Info) -> PushNotificationQueryInfo:
    """Return the protobuf of a device."""
    return PushNotificationQueryInfo(
        access_token=info.access_token,
        installation_id=info.installation_id,
        public_key=info.key_hash,
        allowed_key_list=info.allowed_key_list,
        grant=info.grant,
        version=info.version,
        server_public_key=info.server_key,
    )


def decode_info(message: PushNotificationQueryInfo) -> Info:
    """Return the device of a protobuf."""
    return Info(
        key_hash=message.public_key,
        installation_id=message.installation_id,
        version=message.version,
        access_token=message.access_token,
        allowed_key_list=tuple(message.allowed_key_list),
        grant=message.grant,
        server_key=message.server_public_key,
    )


def parse_response(inner: bytes) -> QueryResponse:
    """Return a server's answer to a query.

    Raises:
        Refused: INNER_MALFORMED.
    """
    message = wire.decode(PushNotificationQueryResponse, inner, Failure.INNER_MALFORMED)
    return QueryResponse(message.message_id, tuple(map(decode_info, message.info)))


def find_token(info: Info, user: PublicKey, asker: PrivateKey) -> str | None:
    """Return the access token of a device, out of the list sealed for its user's contacts if it has such a list.

    Args:
        asker: the client that asked; it may or may not be a contact of the user.

    Returns:
        None if there is no access token for this asker.
    """
    if not info.allowed_key_list:
        return info.access_token if is_uuid(info.access_token) else None
    key = asker.shared_key(user)
    for ciphertext in info.allowed_key_list:
        try:
            token = unseal(key, ciphertext).decode("ascii", "replace")
        except UnsealableError:
            continue
        return token if is_uuid(token) else None
    return None
