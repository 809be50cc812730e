"""What a device is shown, and the data that its app reads: the texts and the three dialects of gorush's `data`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from wakupush.model.notifications import NotificationType

if TYPE_CHECKING:
    from collections.abc import Mapping

Dialect = Literal["spec", "status", "both"]
Data = dict[str, str | list[str]]

#: The texts that devices show; the server knows no more about a notification.
TEXTS: Mapping[NotificationType, str] = {
    NotificationType.MESSAGE: "You have a new message",
    NotificationType.MENTION: "Someone mentioned you",
    NotificationType.REQUEST_TO_JOIN_COMMUNITY: "Someone requested to join a community you are an admin of",
    NotificationType.CONTACT_REQUEST: "Someone sent you a contact request",
}
#: Both platforms take 4 KB in all. Above this many bytes of data the notification is sent without the message.
MOST_DATA_BYTES = 3584


def fitting(dialect: Dialect, *, key_hash: bytes, installation_id: str, chat_id: bytes, message: bytes) -> bytes:
    """Return the message if it fits into a notification; empty if the data would be above `MOST_DATA_BYTES`.

    The arguments are those of `data`.
    """
    # Hex takes two characters a byte, so most messages that are too large need not be encoded to find out.
    too_large = 2 * len(message) > MOST_DATA_BYTES or (
        len(json.dumps(_data(dialect, key_hash, installation_id, chat_id, message))) > MOST_DATA_BYTES
    )
    return b"" if too_large else message


def data(dialect: Dialect, *, key_hash: bytes, installation_id: str, chat_id: bytes, message: bytes) -> Data:
    """Return gorush's `data` of a notification: hex texts with ``0x``, just ``0x`` where empty.

    Args:
        dialect: `spec` (71, Handle Notification Request), `status` (what Status clients read), or `both`.
        key_hash: of the receiving user, 64 bytes.
        installation_id: of the receiving device.
        chat_id: hash of the chat.
        message: encrypted to the receiver; left out if it is not `fitting`.
    """
    fits = fitting(dialect, key_hash=key_hash, installation_id=installation_id, chat_id=chat_id, message=message)
    return _data(dialect, key_hash, installation_id, chat_id, fits)


def _data(dialect: Dialect, key_hash: bytes, installation_id: str, chat_id: bytes, message: bytes) -> Data:
    whole: Data = {
        "encryptedMessage": _hex(message),
        "chatId": _hex(chat_id),
        "publicKey": _hex(key_hash),
        "chat_id": _hex(chat_id),
        "message": _hex(message),
        "installation_ids": [installation_id],
    }
    return {key: whole[key] for key in _KEYS[dialect]}


_STATUS = ("encryptedMessage", "chatId", "publicKey")
_SPEC = ("chat_id", "message", "installation_ids")
_KEYS: Mapping[Dialect, tuple[str, ...]] = {"spec": _SPEC, "status": _STATUS, "both": _STATUS + _SPEC}


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
