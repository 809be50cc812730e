"""Files of the reference server's database: plain SQLite, as its daemons have them, or SQLCipher's, as accounts do.

A file that is read is never written to. Without a WAL it is opened as immutable, so SQLite makes no files beside it.
A WAL is read too; then only its index (``-shm``) is made or used.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.schema import COLUMNS, OURS, REGISTRATIONS, REQUESTS

#: How often status-go hashes the password of an account by default (common/dbsetup/db_setup.go).
KDF_ITERATIONS: Final = 3200
#: The first bytes of an unencrypted file.
_PLAIN: Final = b"SQLite format 3\0"
#: The settings of status-go's encryption (sqlite/sqlite.go), except the iterations.
_CIPHER: Final = (
    "cipher_page_size = 8192",
    "cipher_hmac_algorithm = HMAC_SHA1",
    "cipher_kdf_algorithm = PBKDF2_HMAC_SHA1",
)
#: Seconds to wait for a process that writes.
_PATIENCE: Final = 60.0
_WAL: Final = "its server leaves rows in the -wal beside it, also when it is stopped: copy both together"
#: How the name of push-notification-server's other database ends.
_WALLET: Final = "-wallet.db"
#: Bytes of a WAL before its first frame, and of a frame before its page.
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
#: Seconds for which the checks may run, and the bytes of a file for each further second, fewer than a slow disk
#: reads: a schema that a stranger wrote may be endless work.
_CHECK_SECONDS: Final = 60.0
_BYTES_A_SECOND: Final = 1_000_000
#: Steps of SQLite between two looks at the clock.
_STEPS: Final = 100_000


@contextmanager
def open_database(
    path: Path, password: str | None, kdf_iterations: int = KDF_ITERATIONS
) -> Iterator[sqlite3.Connection]:
    """Check that a database of the reference server is whole, and open it for reading.

    Texts are returned as bytes, because those of strangers may not be valid UTF-8.

    Args:
        password: of an encrypted one.
        kdf_iterations: how often its password is hashed.

    Raises:
        TakeoverError: the file or its WAL is missing, it is damaged or of another program, or the password is wrong.
    """
    path = _real(path)
    module = _module(path, password)
    try:
        with closing(module.connect(_address(path), uri=True, timeout=_PATIENCE)) as connection:
            if module is not sqlite3:
                _unlock(connection, password or "", kdf_iterations)
            connection.text_factory = bytes
            connection.execute("PRAGMA trusted_schema = OFF")
            ends = time.monotonic() + _CHECK_SECONDS + path.stat().st_size / _BYTES_A_SECOND
            connection.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
            _check(connection, path, is_keyed=module is not sqlite3)
            connection.set_progress_handler(None, 0)
            yield connection
    except (sqlite3.Error, module.Error) as error:
        raise TakeoverError(_words(path, error, None if module is sqlite3 else kdf_iterations)) from None


def is_journal_missing(path: Path) -> bool:
    """Return whether a file in WAL mode has no WAL beside it.

    That is normal once the last connection was closed, which the reference never does. An encrypted file does not show
    its mode and is taken to be in WAL mode, as those of accounts are.
    """
    path = _real(path)
    with path.open("rb") as stream:
        header = stream.read(20)
    return not _has_wal(path) and (not header.startswith(_PLAIN) or header[18:20] == b"\2\2")


def _real(path: Path) -> Path:
    """Return the target of a link: SQLite keeps the WAL beside that. Of links in a circle it returns one."""
    return Path(os.path.realpath(path))


def module_for(password: str | None) -> Any:
    """Return the module that reads and writes files: SQLCipher's if there is a password.

    Raises:
        TakeoverError: it is not installed.
    """
    if password is None:
        return sqlite3
    try:
        from sqlcipher3 import dbapi2  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise TakeoverError("encrypted databases need SQLCipher: install wakupush[reference]") from None
    return dbapi2


def _module(path: Path, password: str | None) -> Any:
    if path.is_dir():
        raise TakeoverError(
            f"{path} is a folder: give the database in it, 02….db or 03….db of statusd,"
            " 02…-app.db or 03…-app.db of push-notification-server"
        )
    try:
        with path.open("rb") as stream:
            header = stream.read(len(_PLAIN))
    except OSError as error:
        raise TakeoverError(f"{path} cannot be read: {error.strerror}") from None
    if header == _PLAIN:
        return sqlite3
    if len(header) < len(_PLAIN):
        raise TakeoverError(f"{path} is not a database: it is {'empty' if not header else 'truncated'}")
    if password is None:
        raise TakeoverError(f"{path} is encrypted, or no database: give its password by --password-file")
    return module_for(password)


def _address(path: Path) -> str:
    """Return the URI of a file. Without a WAL it is read as immutable, otherwise SQLite would make a WAL."""
    return f"{path.as_uri()}?mode=ro" + ("" if _has_wal(path) else "&immutable=1")


def _has_wal(path: Path) -> bool:
    return _wal_of(path).exists()


def _wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _unlock(connection: sqlite3.Connection, password: str, kdf_iterations: int) -> None:
    literal = password.replace("'", "''")
    connection.execute(f"PRAGMA key = '{literal}'")
    for pragma in (*_CIPHER, f"kdf_iter = {kdf_iterations}"):
        connection.execute(f"PRAGMA {pragma}")


def create(path: Path, password: str | None, kdf_iterations: int) -> sqlite3.Connection:
    """Return a connection to a new database in an empty file, encrypted as status-go does if there is a password.

    Args:
        password: None for a plain one.
        kdf_iterations: how often the password is hashed.

    Raises:
        TakeoverError: SQLCipher is not installed.
    """
    connection: sqlite3.Connection = module_for(password).connect(str(path))
    if password is not None:
        _unlock(connection, password, kdf_iterations)
    return connection


def _check(connection: sqlite3.Connection, path: Path, *, is_keyed: bool) -> None:
    tables = {
        name.decode("utf-8", "replace")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE rootpage > 0")
    }
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    _check_sizes(path, int(page_bytes))  # SQLCipher has it as text
    if not tables & COLUMNS.keys() and path.name.endswith(_WALLET):
        app = path.name.removesuffix(_WALLET) + "-app.db"
        raise TakeoverError(f"{path} is the database of a wallet: the server's is {app} beside it")
    if not tables & COLUMNS.keys():
        raise TakeoverError(f"{path} has no tables of a push notification server: it is of another program")
    # A view in the place of a table, or a virtual one, runs what its author wrote; neither has pages.
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND rootpage = 0"
    ):
        if name.decode("utf-8", "replace").lower() in COLUMNS.keys() | {OURS}:
            raise TakeoverError(f"{path} has a view in the place of a table: a stranger made it")
    for table, expected in COLUMNS.items():
        columns = {row[1].decode("utf-8", "replace") for row in connection.execute(f"PRAGMA table_info({table})")}
        if columns != expected:
            raise TakeoverError(
                f"{path} has another schema: its columns of {table} are {', '.join(sorted(columns)) or 'missing'}"
            )
    if is_keyed and connection.execute("PRAGMA cipher_integrity_check").fetchone():
        raise TakeoverError(f"{path} is damaged: its integrity check failed; copy it anew, with its -wal")
    if connection.execute("PRAGMA quick_check(1)").fetchone() != (b"ok",):
        raise TakeoverError(f"{path} is damaged or truncated: copy it anew, with its -wal")
    if not any(count(connection)):
        raise TakeoverError(f"{path} has the tables, but not one row. {_WAL}")


def _check_sizes(path: Path, page_bytes: int) -> None:
    """Refuse a file or a WAL that ends within a page: SQLite silently ignores the damaged end of a WAL."""
    if path.stat().st_size % page_bytes:
        raise TakeoverError(f"{path} is truncated: copy it anew, with its -wal")
    wal = _wal_of(path)
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    if wal_bytes and (wal_bytes - _WAL_HEADER) % (page_bytes + _FRAME_HEADER):
        raise TakeoverError(
            f"{wal} is truncated: copy it anew, with {path.name}; if its server is just writing, run the command again"
        )


def count(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return how many rows of installations there are, with the unregistered ones of our exports, and of requests."""
    tables = [REGISTRATIONS, REQUESTS, *([f"{OURS} WHERE NOT registered"] if has_ours(connection) else [])]
    counts = [
        int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - names of our own
        for table in tables
    ]
    return counts[0] + sum(counts[2:]), counts[1]


def has_ours(connection: sqlite3.Connection) -> bool:
    """Return whether a database is an export of ours."""
    return bool(connection.execute(f"PRAGMA table_info({OURS})").fetchone())


def _words(path: Path, error: Exception, kdf_iterations: int | None) -> str:
    text = str(error)
    if "not a database" in text and kdf_iterations is not None:
        return (
            f"{path}: the password is wrong, or not hashed {kdf_iterations} times (--kdf-iterations),"
            " or it is not a database of status-go"
        )
    if "not a database" in text:
        return f"{path}: {text}"
    if "interrupted" in text:
        return f"{path} takes too long to check: a stranger made it, or the disk is very slow"
    if "malformed" in text:
        return f"{path} is damaged or truncated: copy it anew, with its -wal"
    if "unable to open" in text or "readonly" in text:
        return f"{path} cannot be opened: its -wal needs an index (-shm) in a folder that can be written to; copy them"
    return f"{path} cannot be read: {type(error).__name__}"
