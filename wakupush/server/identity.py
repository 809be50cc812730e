"""The server's key and what is derived from it."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wakupush import keyfile
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey
from wakupush.state.registrations import Installation

if TYPE_CHECKING:
    from wakupush.settings import Settings

_DIGEST_BYTES = 16


class NoIdentityError(Exception):
    """The server has no usable private key; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The server's key pair, and keys derived from it by HKDF, which are never rotated."""

    private_key: PrivateKey
    _installation_key: bytes = field(repr=False)
    _request_key: bytes = field(repr=False)
    _pseudonym_key: bytes = field(repr=False)
    #: Seals segments that wait for the others: opened, but not yet to be known.
    segment_key: bytes = field(repr=False)
    #: Seals what a job of the pipeline tells its executors, which have the private key too.
    pipeline_key: bytes = field(repr=False)

    @classmethod
    def of(cls, private_key: PrivateKey) -> Identity:
        """Return the identity of a private key."""
        names = ("installation id", "request id", "pseudonym", "segment", "pipeline")
        return cls(private_key, *(_derive(private_key, name) for name in names))

    @property
    def public_key(self) -> PublicKey:
        """The key that clients register with."""
        return self.private_key.public_key

    def installation(self, key_hash: bytes, installation_id: str) -> Installation:
        """Return the key of an installation's rows: its id is kept as a keyed hash (16 bytes)."""
        return Installation(key_hash, _digest(self._installation_key, key_hash, installation_id.encode()))

    def request_digest(self, request_id: bytes) -> bytes:
        """Return the keyed digest (16 bytes) by which a repeated registration is recognised."""
        return _digest(self._request_key, request_id)

    def pseudonyms(self, installation: Installation) -> tuple[bytes, bytes]:
        """Return the pseudonyms (16 bytes each) of a user and an installation in events."""
        return (
            self.pseudonym(installation.key_hash),
            _digest(self._pseudonym_key, installation.key_hash, installation.installation_hash),
        )

    def pseudonym(self, key_hash: bytes) -> bytes:
        """Return the pseudonym (16 bytes) of a user in events."""
        return _digest(self._pseudonym_key, key_hash)


def load_identity(settings: Settings) -> Identity:
    """Return the identity that the settings name.

    Raises:
        NoIdentityError: no key, an unreadable file, or no key in it.
    """
    if settings.identity_key is not None:
        try:
            return Identity.of(PrivateKey.from_hex(settings.identity_key.get_secret_value()))
        except InvalidKeyError as error:
            raise NoIdentityError(f"WAKUPUSH_IDENTITY_KEY holds no private key: {error}") from None
    if settings.identity_key_file is not None:
        try:
            return Identity.of(keyfile.read(settings.identity_key_file))
        except keyfile.KeyFileError as error:
            raise NoIdentityError(str(error)) from None
    raise NoIdentityError("no private key: set WAKUPUSH_IDENTITY_KEY_FILE (`wakupush keygen FILE` makes one)")


def is_published(identity: Identity, settings: Settings) -> bool:
    """Say whether the public key of the settings, which ingest listens by, is that of the identity, or is not given.

    Raises:
        NoIdentityError: it is no public key.
    """
    if settings.public_key is None:
        return True
    try:
        return PublicKey.from_hex(settings.public_key) == identity.public_key
    except InvalidKeyError as error:
        raise NoIdentityError(f"WAKUPUSH_PUBLIC_KEY: {error}") from None


def _derive(private_key: PrivateKey, name: str) -> bytes:
    info = b"wakupush/1 " + name.encode()
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(private_key.secret)


def _digest(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")[:_DIGEST_BYTES]
