"""The private key of the reference server's database, which has to be this server's key."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Final
from uuid import UUID

from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import InvalidKeyError, PrivateKey
from wakupush.runtime import keyfile
from wakupush.runtime.settings import Settings
from wakupush.server.engine.identity import NoIdentityError, is_published, load_identity
from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.schema import IDENTITY

#: Environment variable of push-notification-server, which takes its key from there or as ``-identity``.
NODE_KEY_VARIABLE: Final = "STATUS_GO_NODE_KEY"
#: Names of databases: of statusd, and of push-notification-server.
_FILE_NAME: Final = re.compile(r"(0[23][0-9a-f]{6}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})((?:-app)?\.db)")


def their_key(
    connection: sqlite3.Connection, *, config: Path | None, key_file: Path | None, node_key: str | None
) -> PrivateKey:
    """Return the private key of the reference server: the first of these that is given, else that of the database.

    Args:
        config: the configuration of statusd.
        key_file: holds what push-notification-server gets as ``-identity``, 64 hex digits.
        node_key: those digits, as it reads them from `NODE_KEY_VARIABLE`; empty for none, as to that server.

    Raises:
        TakeoverError: there is no valid key.
    """
    if config is not None:
        return _node_key(config)
    if key_file is not None:
        try:
            return keyfile.read(key_file, PrivateKey.from_hex)
        except keyfile.KeyFileError as error:
            raise TakeoverError(str(error)) from None
    if node_key:
        try:
            return PrivateKey.from_hex(node_key)
        except InvalidKeyError as error:
            raise TakeoverError(f"{NODE_KEY_VARIABLE} holds no key of 64 hex digits: {error}") from None
    row = connection.execute(f"SELECT private_key FROM {IDENTITY} LIMIT 1").fetchone()  # noqa: S608 - a name of ours
    if row is None:
        raise TakeoverError(
            "the database does not hold the server's key: give the -identity of push-notification-server in a file by"
            f" --identity-file, or by {NODE_KEY_VARIABLE}, or the configuration of statusd by --config (NodeKey)"
        )
    try:
        return PrivateKey(row[0])
    except (InvalidKeyError, TypeError):
        raise TakeoverError(f"the value in {IDENTITY} is not a private key") from None


def check_name(path: Path, key: PrivateKey) -> None:
    """Compare a key with the name of the database's file, if it has the one that its server gave it.

    The server names it by the first 16 bytes of its compressed public key, written as a uuid.

    Raises:
        TakeoverError: the file is of another key.
    """
    named = _FILE_NAME.fullmatch(path.name)
    if named and UUID(named[1]).bytes != key.public_key.compressed[:16]:
        raise TakeoverError(
            f"{path.name} has the name of another server's database: with this key, {key.public_key}, it would be"
            f" {UUID(bytes=key.public_key.compressed[:16])}{named[2]}"
        )


def agree(theirs: PrivateKey, settings: Settings, key_file: Path | None) -> Identity:
    """Return the server's identity, that of the settings; its key has to be that of the database.

    Args:
        theirs: the key of the database.
        settings: may name a key file that is still to be written.
        key_file: the file to which the key will be written for the server; None for no file.

    Raises:
        TakeoverError: the server has another key, or none.
    """
    try:
        ours = None if _is_to_come(settings, key_file) else load_identity(settings)
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
        if file.exists() and keyfile.read(file, PrivateKey.from_hex).secret == key.secret:
            return
        keyfile.write(file, key.secret)
    except keyfile.KeyFileError as error:
        raise TakeoverError(str(error)) from None


def _is_to_come(settings: Settings, key_file: Path | None) -> bool:
    if key_file is None or settings.identity_key is not None:
        return False
    file = settings.identity_key_file
    return file is None or (file.resolve() == key_file.resolve() and not file.exists())


def _node_key(config: Path) -> PrivateKey:
    try:
        key = json.loads(config.read_bytes())["NodeKey"]
        return PrivateKey.from_hex(key)
    except OSError as error:
        raise TakeoverError(f"{config} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TakeoverError(
            f"{config} is no configuration of statusd with a NodeKey of 64 hex digits;"
            " a file of these digits alone is given by --identity-file"
        ) from None
