"""The server's keys, as the settings name them."""

from typing import Final

from wakupush.protocol.identity import Identity, parse
from wakupush.protocol.keys import InvalidKeyError, PublicKey
from wakupush.runtime import keyfile
from wakupush.runtime.settings import Settings, SettingsError
from wakupush.runtime.usage import UsageError

#: Said where `is_published` says no.
KEYS_DIFFER: Final = (
    "WAKUPUSH_PUBLIC_KEY is not that of the private key, or WAKUPUSH_PREVIOUS_PUBLIC_KEYS are not those of the keys"
    " before: ingest listens elsewhere"
)


class NoIdentityError(UsageError):
    """The server has no usable private key; the text says what to do."""


def load_identity(settings: Settings) -> Identity:
    """Return the identity that the settings name.

    Raises:
        NoIdentityError: no key is set, or the file is unreadable or holds no key.
    """
    if settings.identity_key is not None:
        try:
            return parse(settings.identity_key.get_secret_value())
        except InvalidKeyError as error:
            raise NoIdentityError(f"WAKUPUSH_IDENTITY_KEY holds no private key: {error}") from None
    if settings.identity_key_file is not None:
        try:
            return keyfile.read(settings.identity_key_file, parse)
        except keyfile.KeyFileError as error:
            raise NoIdentityError(str(error)) from None
    raise NoIdentityError("no private key: set WAKUPUSH_IDENTITY_KEY_FILE (`wakupush keygen FILE` makes one)")


def load_public_keys(settings: Settings) -> tuple[PublicKey, ...]:
    """Return the public keys that the settings name, today's first; ingest listens on the topics of all.

    Raises:
        SettingsError: there is no public key, or one is not valid.
    """
    if settings.public_key is None:
        raise SettingsError("WAKUPUSH_PUBLIC_KEY is missing: `wakupush keygen` prints it")
    return (
        _public_key("WAKUPUSH_PUBLIC_KEY", settings.public_key),
        *(_public_key("WAKUPUSH_PREVIOUS_PUBLIC_KEYS", key) for key in settings.previous_public_keys),
    )


def is_published(identity: Identity, settings: Settings) -> bool:
    """Return whether the settings name no public key, on whose topics ingest listens, or those of the identity.

    Raises:
        NoIdentityError: a key is not valid.
    """
    if settings.public_key is None:
        return True
    try:
        published, *previous = load_public_keys(settings)
    except SettingsError as error:
        raise NoIdentityError(str(error)) from None
    return published == identity.public_key and set(previous) == {key.public_key for key in identity.previous}


def _public_key(setting: str, value: str) -> PublicKey:
    try:
        return PublicKey.from_hex(value)
    except InvalidKeyError as error:
        raise SettingsError(f"{setting}: {error}") from None
