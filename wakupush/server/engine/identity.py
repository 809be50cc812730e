"""The server's keys, as the settings name them."""

from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey
from wakupush.runtime import keyfile
from wakupush.runtime.settings import Settings, SettingsError
from wakupush.runtime.usage import UsageError


class NoIdentityError(UsageError):
    """The server has no usable private key; the text says what to do."""


def load_identity(settings: Settings) -> Identity:
    """Return the identity that the settings name.

    Raises:
        NoIdentityError: no key is set, or the file is unreadable or holds no key.
    """
    if settings.identity_key is not None:
        try:
            return Identity.of(PrivateKey.from_hex(settings.identity_key.get_secret_value()))
        except InvalidKeyError as error:
            raise NoIdentityError(f"WAKUPUSH_IDENTITY_KEY holds no private key: {error}") from None
    if settings.identity_key_file is not None:
        try:
            return Identity.of(keyfile.read(settings.identity_key_file, PrivateKey))
        except keyfile.KeyFileError as error:
            raise NoIdentityError(str(error)) from None
    raise NoIdentityError("no private key: set WAKUPUSH_IDENTITY_KEY_FILE (`wakupush keygen FILE` makes one)")


def load_public_key(settings: Settings) -> PublicKey:
    """Return the public key that the settings name; ingest listens on its topics.

    Raises:
        SettingsError: there is no public key, or it is not valid.
    """
    if settings.public_key is None:
        raise SettingsError("WAKUPUSH_PUBLIC_KEY is missing: `wakupush keygen` prints it")
    try:
        return PublicKey.from_hex(settings.public_key)
    except InvalidKeyError as error:
        raise SettingsError(f"WAKUPUSH_PUBLIC_KEY: {error}") from None


def is_published(identity: Identity, settings: Settings) -> bool:
    """Return whether the settings name no public key, on whose topics ingest listens, or that of the identity.

    Raises:
        NoIdentityError: it is not a public key.
    """
    if settings.public_key is None:
        return True
    try:
        return PublicKey.from_hex(settings.public_key) == identity.public_key
    except InvalidKeyError as error:
        raise NoIdentityError(f"WAKUPUSH_PUBLIC_KEY: {error}") from None
