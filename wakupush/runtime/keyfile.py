"""Private keys in files that only their owner may read, as bytes."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from wakupush.runtime.usage import UsageError

T = TypeVar("T")


class KeyFileError(UsageError):
    """There is no usable key; the text says why, and holds nothing of the file."""


def write(path: Path, secret: bytes) -> None:
    """Write a key of 32 bytes into a new file, as hex digits.

    Raises:
        KeyFileError: the file exists already, or cannot be written.
    """
    write_text(path, secret.hex() + "\n")


def write_text(path: Path, text: str) -> None:
    """Write secret text into a new file.

    Raises:
        KeyFileError: the file exists already, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(
            f"{path} exists already; replacing it would lose the key, and all that was registered with it"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
    except OSError as error:
        path.unlink()
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None


def is_open(path: Path) -> bool:
    """Return whether other users of the machine than its owner and group may read a file, or write to it.

    Raises:
        OSError: it cannot be looked at.
    """
    return bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))


def read(path: Path, parse: Callable[[str], T]) -> T:
    """Return what a file holds.

    Args:
        parse: makes it out of the text; raises ValueError, whose text never repeats it, if it is not as it should be.

    Raises:
        KeyFileError: the file cannot be read, or holds no key.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise KeyFileError(f"the private key in {path} cannot be read: {reason}") from None
    try:
        return parse(text)
    except ValueError as error:
        raise KeyFileError(f"{path} holds no private key: {error}") from None
