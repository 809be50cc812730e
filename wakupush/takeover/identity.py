"""Whose database it is: the reference server's private key, and that it is this server's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import InvalidKeyError, PrivateKey
from wakupush.runtime import keyfile
from wakupush.server.identity import NoIdentityError, is_published, load_identity
from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.schema import IDENTITY

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from wakupush.runtime.settings import Settings


def their_key(connection: sqlite3.Connection, config: Path | None) -> PrivateKey:
    """Return the key of the server whose database it is: of its configuration, else of the table, where it is filled.

    Raises:
        TakeoverError: there is none.
    """
    if config is not None:
        return _node_key(config)
    row = connection.execute(f"SELECT private_key FROM {IDENTITY} LIMIT 1").fetchone()  # noqa: S608 - a name of ours
    if row is None:
        raise TakeoverError(
            "the database does not hold the server's key: give the configuration of statusd by --config (NodeKey)"
        )
    try:
        return PrivateKey(row[0])
    except (InvalidKeyError, TypeError):
        raise TakeoverError(f"what {IDENTITY} holds is no private key") from None


def agreed(theirs: PrivateKey, settings: Settings, written: Path | None) -> Identity:
    """Return the server's identity: that of the settings, which has to be the key of the database.

    Args:
        theirs: the key of the database.
        settings: they may name a file that is still to be written.
        written: where the key will be written, which is the server's then; None for nowhere.

    Raises:
        TakeoverError: the server has another key, or none.
    """
    try:
        ours = None if _is_to_come(settings, written) else load_identity(settings)
        identity = ours or Identity.of(theirs)
        if not is_published(identity, settings):
            raise TakeoverError("WAKUPUSH_PUBLIC_KEY is another server's key: ingest would not listen for this one")
        if identity.public_key != theirs.public_key:
            raise TakeoverError(
                f"the database is of the server {theirs.public_key}, and this server is {identity.public_key}:"
                " without the same key every grant in it is worthless"
            )
    except NoIdentityError as error:
        raise TakeoverError(f"{error}; or --identity-out FILE writes the one of the database") from None
    return identity


def write(key: PrivateKey, file: Path) -> None:
    """Write the key as `wakupush keygen` does; a file that holds it already stays as it is.

    Raises:
        TakeoverError: the file holds something else, or cannot be written.
    """
    try:
        if file.exists() and keyfile.read(file, PrivateKey).secret == key.secret:
            return
        keyfile.write(file, key.secret)
    except keyfile.KeyFileError as error:
        raise TakeoverError(str(error)) from None


def _is_to_come(settings: Settings, written: Path | None) -> bool:
    if written is None or settings.identity_key is not None:
        return False
    file = settings.identity_key_file
    return file is None or (file.resolve() == written.resolve() and not file.exists())


def _node_key(config: Path) -> PrivateKey:
    try:
        key = json.loads(config.read_bytes())["NodeKey"]
        return PrivateKey.from_hex(key)
    except OSError as error:
        raise TakeoverError(f"{config} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TakeoverError(f"{config} is no configuration of statusd with a NodeKey of 64 hex digits") from None
