"""Private keys in files that only their owner may read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wakupush.protocol.keys import InvalidKeyError, PrivateKey

if TYPE_CHECKING:
    from pathlib import Path


class KeyFileError(Exception):
    """There is no usable key; the text says why, and holds nothing of the file."""


def make(path: Path) -> PrivateKey:
    """Write a new key into a new file and return it.

    Raises:
        KeyFileError: the file exists already, or cannot be written.
    """
    key = PrivateKey.generate()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{path} exists already; a key that was replaced would lose every registration") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as stream:
        stream.write(key.secret.hex() + "\n")
    return key


def read(path: Path) -> PrivateKey:
    """Return the key in a file, 64 hex digits.

    Raises:
        KeyFileError: the file cannot be read, or holds no key.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise KeyFileError(f"the private key in {path} cannot be read: {reason}") from None
    try:
        return PrivateKey.from_hex(text)
    except InvalidKeyError as error:
        raise KeyFileError(f"{path} holds no private key: {error}") from None
