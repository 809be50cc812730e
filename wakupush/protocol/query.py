"""PushNotificationQuery and what a server reveals in answer (71, Querying a Server)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from wakupush.failures import Failure
from wakupush.protocol.errors import Refused
from wakupush.protocol.pb.push_notification_pb2 import (
    PushNotificationQuery,
    PushNotificationQueryInfo,
    PushNotificationQueryResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes of the hash that names a user; other keys name nobody.
KEY_HASH_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a server knows of a registered device, as far as a query may reveal it."""

    #: 64 bytes.
    key_hash: bytes
    installation_id: str
    version: int
    access_token: str = field(repr=False)
    #: 65 bytes.
    grant: bytes = field(repr=False)
    allow_from_contacts_only: bool
    allowed_key_list: tuple[bytes, ...] = field(repr=False)


def parse_query(inner: bytes, *, most_keys: int) -> tuple[bytes, ...]:
    """Return the key hashes (64 bytes each) that a query asks for, each once.

    Raises:
        Refused: INNER_MALFORMED, QUERY_LIMIT above `most_keys`, or QUERY_WITHOUT_KEYS where no key is one.
    """
    try:
        keys = PushNotificationQuery.FromString(inner).public_keys
    except DecodeError:
        raise Refused(Failure.INNER_MALFORMED) from None
    if len(keys) > most_keys:
        raise Refused(Failure.QUERY_LIMIT)
    wanted = tuple(dict.fromkeys(key for key in keys if len(key) == KEY_HASH_BYTES))
    if not wanted:
        raise Refused(Failure.QUERY_WITHOUT_KEYS)
    return wanted


def reveal(device: Device) -> PushNotificationQueryInfo:
    """Return what a query learns of a device: at most one of access token and allowed_key_list.

    The specification's disclosed data are the ceiling: contacts only without contacts reveals neither.
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


def encode_response(message_id: bytes, devices: Iterable[Device]) -> bytes:
    """Return the PushNotificationQueryResponse to the query with this application message id (32 bytes).

    Raises:
        Refused: NOTHING_KNOWN: without information a response MUST NOT be sent.
    """
    infos = [reveal(device) for device in devices]
    if not infos:
        raise Refused(Failure.NOTHING_KNOWN)
    return PushNotificationQueryResponse(info=infos, message_id=message_id, success=True).SerializeToString()
