"""User data in the database: sealed, or kept as keyed digests where only equality matters.

All keys are derived from the server's private key, one for each purpose; the contents of deliveries have one a month. A
sealed value has its place as associated data, so that it cannot be opened in another place.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wakupush.model.platforms import Platform
from wakupush.model.registrations import Address, Installation, Registration, Target
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration
from wakupush.protocol.sealing import NONCE_BYTES, UnsealableError

#: Bytes of a digest.
DIGEST_BYTES: Final = 16
#: The columns of a registration's row that `AtRest.columns` makes.
KEYED_COLUMNS: Final = (
    "sealed_device",
    "sealed_allowed_key_list",
    "access_token_digest",
    "blocked_chat_digests",
    "muted_chat_digests",
    "allowed_mentions_chat_digests",
)
#: The first byte of what is sealed for its row since migration 0108, and the bytes of a month.
_BOUND: Final = b"\1"
_MONTH_BYTES: Final = 2
#: How much of an application message id is kept.
REQUEST_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class AtRest:
    """The keys that seal columns of the database; `of` derives them."""

    #: Makes the key of a purpose, 32 bytes.
    _derive: Callable[[str], bytes] = field(repr=False)
    #: Returns what seals with the key of a purpose.
    _cipher: Callable[[str], AESGCM] = field(repr=False)

    @classmethod
    def of(cls, derive: Callable[[str], bytes]) -> AtRest:
        """Return the keys that `derive` makes of the names of their purposes, 32 bytes each."""
        derive = cache(derive)
        return cls(derive, cache(lambda purpose: AESGCM(derive(purpose))))

    def columns(self, installation: Installation, registration: Registration) -> dict[str, bytes | None]:
        """Return the columns of a registration's row that are made with these keys, by name."""
        return {
            "sealed_device": self.seal_device(installation, registration),
            "sealed_allowed_key_list": self.seal_allowed_key_list(installation, registration),
            "access_token_digest": self.access_token(installation, registration.access_token),
            "blocked_chat_digests": self.list_digests(installation, registration.blocked_chat_list),
            "muted_chat_digests": self.list_digests(installation, registration.muted_chat_list),
            "allowed_mentions_chat_digests": self.list_digests(installation, registration.allowed_mentions_chat_list),
        }

    def seal_device(self, installation: Installation, registration: Registration) -> bytes:
        """Return the device token and the fields that a query reveals, sealed for their row and version."""
        plaintext = PushNotificationRegistration(
            installation_id=registration.installation_id,
            device_token=registration.device_token,
            access_token=registration.access_token,
            grant=registration.grant,
            apn_topic=registration.apn_topic,
        ).SerializeToString()
        return self._seal("at rest: device", plaintext, _row("sealed_device", installation, registration.version))

    def open_device(self, installation: Installation, version: int, ciphertext: bytes) -> PushNotificationRegistration:
        """Return the fields that `seal_device` sealed; the others are empty.

        Raises:
            UnsealableError: it belongs to another row, version or server.
        """
        plaintext = self._open("at rest: device", ciphertext, _row("sealed_device", installation, version))
        return PushNotificationRegistration.FromString(plaintext)

    def target(
        self,
        installation: Installation,
        version: int,
        ciphertext: bytes,
        platform: int,
        *,
        suspected: bool,
        proven: bool,
    ) -> Target:
        """Return where notifications of a device are sent to; see `open_device`."""
        device = self.open_device(installation, version, ciphertext)
        return Target(
            version=version,
            installation_id=device.installation_id,
            platform=Platform(platform),
            device_token=device.device_token,
            apn_topic=device.apn_topic,
            suspected=suspected,
            proven=proven,
        )

    def seal_allowed_key_list(self, installation: Installation, registration: Registration) -> bytes | None:
        """Return the list sealed for its row and version, None if it is empty."""
        if not registration.allowed_key_list:
            return None
        plaintext = PushNotificationRegistration(allowed_key_list=registration.allowed_key_list).SerializeToString()
        place = _row("sealed_allowed_key_list", installation, registration.version)
        return self._seal("at rest: allowed_key_list", plaintext, place)

    def open_allowed_key_list(self, installation: Installation, version: int, ciphertext: bytes) -> tuple[bytes, ...]:
        """Return the list that `seal_allowed_key_list` sealed.

        Raises:
            UnsealableError: it belongs to another row, version or server.
        """
        place = _row("sealed_allowed_key_list", installation, version)
        plaintext = self._open("at rest: allowed_key_list", ciphertext, place)
        return tuple(PushNotificationRegistration.FromString(plaintext).allowed_key_list)

    def seal_content(
        self, delivery_key: bytes, installation: Installation, chat_id: bytes, message: bytes, *, at: float
    ) -> bytes:
        """Return chat id and message of a notification, sealed for its delivery with the key of a month.

        A random nonce must not repeat under one key, and there are many contents.

        Args:
            delivery_key: 32 bytes.
            at: seconds since the epoch, which choose the month.

        Returns:
            A byte for the form, two for the month, and nonce | ciphertext | tag.
        """
        time = datetime.fromtimestamp(at, UTC)
        month = (12 * time.year + time.month - 1).to_bytes(_MONTH_BYTES, "big")
        plaintext = PushNotification(chat_id=chat_id, message=message).SerializeToString()
        place = _content_place(month, delivery_key, installation)
        return _BOUND + month + self._seal(_content_of(month), plaintext, place)

    def seal_content_for_old_code(self, delivery_key: bytes, chat_id: bytes, message: bytes) -> bytes:
        """Return chat id and message of a notification as code before migration 0108 opens them."""
        plaintext = PushNotification(chat_id=chat_id, message=message).SerializeToString()
        return self._seal("at rest: content", plaintext, _place("deliveries", "sealed_content", delivery_key))

    def open_content(self, delivery_key: bytes, installation: Installation, ciphertext: bytes) -> tuple[bytes, bytes]:
        """Return the chat id and the message that were sealed for a delivery, in either form.

        Raises:
            UnsealableError: it belongs to another delivery, installation or server.
        """
        plaintext = None
        if ciphertext.startswith(_BOUND):
            month, sealed = ciphertext[1 : 1 + _MONTH_BYTES], ciphertext[1 + _MONTH_BYTES :]
            # The old form may begin so by chance, one in 256.
            with suppress(UnsealableError):
                plaintext = self._open(_content_of(month), sealed, _content_place(month, delivery_key, installation))
        if plaintext is None:
            plaintext = self._open("at rest: content", ciphertext, _place("deliveries", "sealed_content", delivery_key))
        content = PushNotification.FromString(plaintext)
        return content.chat_id, content.message

    def seal_part(self, signer: bytes, entire_message_hash: bytes, index: int, payload: bytes) -> bytes:
        """Return the payload of a segment, sealed for its row: a byte for the form, and nonce | ciphertext | tag."""
        return _BOUND + self._seal("segment", payload, _part_place(signer, entire_message_hash, index))

    def seal_part_for_old_code(self, payload: bytes) -> bytes:
        """Return the payload of a segment as code before migration 0108 opens it."""
        return self._seal("segment", payload, None)

    def open_part(self, signer: bytes, entire_message_hash: bytes, index: int, ciphertext: bytes) -> bytes:
        """Return the payload that was sealed for a row, in either form.

        Raises:
            UnsealableError: it belongs to another row or server.
        """
        if ciphertext.startswith(_BOUND):
            # The old form may begin so by chance, one in 256.
            with suppress(UnsealableError):
                return self._open("segment", ciphertext[1:], _part_place(signer, entire_message_hash, index))
        return self._open("segment", ciphertext, None)

    def address(self, installation: Installation, *, access_token: str, chat_id: bytes, author: bytes) -> Address:
        """Return the address of a notification: the digests that the device's row has."""
        return Address(
            installation,
            self.access_token(installation, access_token),
            self.item_digest(installation, chat_id),
            self.item_digest(installation, author),
        )

    def access_token(self, installation: Installation, access_token: str) -> bytes:
        """Return the digest (16 bytes) of a device's access token."""
        return _digest(self._derive("at rest: access token"), installation, access_token.encode())

    def device(self, installation: Installation, registration: Registration) -> bytes:
        """Return the digest (16 bytes) of the device that a registration names: its platform, topic and token.

        Each installation has its own, so that the rows do not show which users share a device.
        """
        device = f"{int(registration.token_type)}\0{registration.apn_topic}\0{registration.device_token}"
        return _digest(self._derive("at rest: same device"), installation, device.encode())

    def item_digest(self, installation: Installation, item: bytes) -> bytes:
        """Return the digest (16 bytes) of a chat or an author.

        Each installation has its own digests. Otherwise the rows and a dictionary of chats would show which
        users share a chat.
        """
        return _digest(self._derive("at rest: chat or author"), installation, item)

    def list_digests(self, installation: Installation, items: Iterable[bytes]) -> bytes | None:
        """Return the digests of a list of chats and authors, each once, in ascending order; None if it is empty."""
        return b"".join(sorted({self.item_digest(installation, item) for item in items})) or None

    def _seal(self, purpose: str, plaintext: bytes, place: bytes | None) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher(purpose).encrypt(nonce, plaintext, place)

    def _open(self, purpose: str, ciphertext: bytes, place: bytes | None) -> bytes:
        try:
            return self._cipher(purpose).decrypt(ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise UnsealableError("sealed for another place or by another server") from None


def _content_of(month: bytes) -> str:
    return f"at rest: content of {int.from_bytes(month, 'big')}"


def _content_place(month: bytes, delivery_key: bytes, installation: Installation) -> bytes:
    names = month, delivery_key, installation.key_hash, installation.installation_hash
    return _place("deliveries", "sealed_content", *names)


def _part_place(signer: bytes, entire_message_hash: bytes, index: int) -> bytes:
    return _place("message_segments", "payload", signer, entire_message_hash, index.to_bytes(8, "big"))


def _row(column: str, installation: Installation, version: int) -> bytes:
    return _place(
        "registrations", column, installation.key_hash, installation.installation_hash, version.to_bytes(8, "big")
    )


def _place(table: str, column: str, *parts: bytes) -> bytes:
    names = (table.encode(), column.encode(), *parts)
    return b"".join(len(name).to_bytes(4, "big") + name for name in names)


def _digest(key: bytes, installation: Installation, value: bytes) -> bytes:
    # Two parts of known lengths before the only one that varies.
    data = installation.key_hash + installation.installation_hash + value
    return blake2b(data, key=key, digest_size=DIGEST_BYTES).digest()
