"""Reading gorush's data on a device (71, Receiving): the account, the chat and the message. Sans-IO."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wakupush.client.rules.accounts import Account
from wakupush.protocol import payload
from wakupush.protocol.application import ApplicationMessage, Type, unwrap, wrap
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.keys import PrivateKey, PublicKey


@dataclass(frozen=True, slots=True)
class Data:
    """gorush's data of any built-in profile; missing values are empty."""

    chat_id: bytes = field(repr=False)
    message: bytes = field(repr=False)
    #: Of the receiving user, 64 bytes.
    key_hash: bytes
    installation_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """The account, chat and message of a notification."""

    account: Account
    #: The chat's id if it is one of the known chats.
    chat_id: str | None = field(repr=False)
    #: None: the push did not contain a readable message; fetch it from the Store.
    message: ApplicationMessage | None
    #: True if the message was received before, by any way: show nothing.
    repeated: bool


def parse(data: Mapping[str, Any]) -> Data:
    """Return gorush's data of any built-in profile. Values of a wrong type count as missing."""
    ids = data.get("installation_ids")
    return Data(
        chat_id=_hex(data.get("chat_id")) or _hex(data.get("chatId")),
        message=_hex(data.get("message")) or _hex(data.get("encryptedMessage")),
        key_hash=_hex(data.get("publicKey")),
        installation_ids=tuple(value for value in ids if isinstance(value, str)) if isinstance(ids, list) else (),
    )


def receive(
    data: Data, accounts: Sequence[Account], chat_ids: Iterable[str], is_known: Callable[[bytes], bool]
) -> Received | None:
    """Return the account, chat and message of a notification; None if no account fits.

    Args:
        chat_ids: of the chats that are known.
        is_known: says whether the message with this id, 32 bytes, was received before.
    """
    account = next((account for account in accounts if _is_for(data, account)), None)
    if account is None:
        return None
    chat_id = next((chat for chat in chat_ids if shake256_64(chat.encode()) == data.chat_id), None)
    message = _open(data.message, account)
    return Received(account, chat_id, message, repeated=message is not None and is_known(message.message_id))


def seal_message(sender: PrivateKey, recipient: PublicKey, kind: int, inner: bytes) -> tuple[bytes, bytes]:
    """Return a message as `receive` opens it, and its id (32 bytes): for messengers without an encryption of their own.

    It is sealed to the recipient's chat key and names its sender inside, where no server can read.

    Args:
        sender: the chat key.
        recipient: the chat key.
        kind: of the message, a number of 62/STATUS-PAYLOADS.
    """
    metadata = wrap(Type.ValueType(kind), inner, sender)
    return payload.seal_asymmetric(metadata, recipient), unwrap(metadata).message_id


def _is_for(data: Data, account: Account) -> bool:
    return account.installation_id in data.installation_ids or data.key_hash == account.push_key.public_key.key_hash


def _open(ciphertext: bytes, account: Account) -> ApplicationMessage | None:
    try:
        return unwrap(payload.open_asymmetric(ciphertext, account.key).data)
    except Refused:
        return None


def _hex(value: object) -> bytes:
    try:
        return bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else b""
    except ValueError:
        return b""
