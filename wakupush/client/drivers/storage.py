"""The storage of a client's state: an interface of four functions, and its implementation in SQLite."""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote

from wakupush.client.documents import DocumentKind, Hex, Key, document
from wakupush.client.rules.acquaintances import Acquaintance
from wakupush.client.rules.registering import RegistrarState

T = TypeVar("T")


@document
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The switches and the identity of this installation."""

    installation_id: str = ""
    #: The chat key that the account belongs to; None in accounts of earlier versions.
    user: Key | None = None
    #: In anonymous mode: the private key that registers, 32 bytes; else empty.
    push_key: Hex = field(repr=False, default=b"")
    #: Whether servers may be asked for pushes to others.
    sending: bool = False


@document
@dataclass(frozen=True, slots=True)
class Advertising:
    """When to advertise next."""

    #: In seconds since the epoch; None while there is nothing to advertise.
    next_at: float | None = None


@document
@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message that was received; its id is the document's name."""


#: Every kind of document.
SETTINGS = DocumentKind("settings", ClientSettings)
REGISTRATION = DocumentKind("registration", RegistrarState)
ADVERTISING = DocumentKind("advertising", Advertising)
ACQUAINTANCE = DocumentKind("acquaintance", Acquaintance)
SEEN = DocumentKind("seen", SeenMessage)

#: Each remembered message deletes old documents, and finds them by this index.
_INDEX = "CREATE INDEX IF NOT EXISTS documents_put_at ON documents (account, kind, put_at)"
_TABLE = """
CREATE TABLE IF NOT EXISTS documents (
    account TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, put_at REAL NOT NULL,
    PRIMARY KEY (account, kind, name)
) WITHOUT ROWID
"""


class InUseError(Exception):
    """Another client of the account runs. Two would overwrite each other's documents, and use versions twice."""


class Storage(Protocol):
    """Documents of one account by kind and name. They survive the process."""

    def get(self, kind: DocumentKind[T], name: str) -> T | None:
        """Return a document, None if there is none.

        Raises:
            UnreadableError: it cannot be read.
        """

    def put(self, kind: DocumentKind[T], name: str, value: T) -> None:
        """Store a document; it replaces one of the same name."""

    def forget(self, kind: DocumentKind[T], before: float) -> None:
        """Delete the documents of a kind that were put before a time, in seconds since the epoch."""

    def lock(self) -> AbstractContextManager[None]:
        """Keep other clients of the account from running inside the block.

        Raises:
            InUseError: one runs.
        """


class SqliteFile:
    """A SQLite file for any number of accounts. Only its owner may read it: it holds access tokens and keys.

    Args:
        path: created if missing; ``:memory:`` stores nothing on disk.
    """

    def __init__(self, path: Path | str) -> None:
        if str(path) != ":memory:":
            os.close(_open(path))
        self._path = str(path)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            for statement in ("PRAGMA busy_timeout = 5000", "PRAGMA journal_mode = WAL", _TABLE, _INDEX):
                self._connection.execute(statement)
        except sqlite3.Error:
            self._connection.close()
            raise

    def account(self, name: str) -> Storage:
        """Return the documents of an account."""
        return _Account(self, name)

    def run(self, statement: str, *values: str | float) -> list[Any]:
        """Run a statement and return its rows."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep other clients of an account from running inside the block, by a lock file beside the SQLite file.

        Raises:
            InUseError: one runs, in this process or another.
            OSError: the file system has no locks.
        """
        if self._path == ":memory:":
            yield
            return
        path = f"{self._path}.{quote(name, safe='')}.lock"
        with os.fdopen(_open(path)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError("another client of this account runs") from None
            except OSError as error:  # the error of a file system without locks does not name the file
                raise OSError(error.errno, error.strerror, path) from error
            yield

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Account:
    """The documents of one account in a file."""

    def __init__(self, file: SqliteFile, name: str) -> None:
        self._file = file
        self._name = name

    def get(self, kind: DocumentKind[T], name: str) -> T | None:
        rows = self._file.run(
            "SELECT value FROM documents WHERE account = ? AND kind = ? AND name = ?", self._name, kind.name, name
        )
        return kind.load(rows[0][0]) if rows else None

    def put(self, kind: DocumentKind[T], name: str, value: T) -> None:
        text = kind.dump(value)
        self._file.run(
            "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)", self._name, kind.name, name, text, time.time()
        )

    def forget(self, kind: DocumentKind[T], before: float) -> None:
        self._file.run(
            "DELETE FROM documents WHERE account = ? AND kind = ? AND put_at < ?", self._name, kind.name, before
        )

    def lock(self) -> AbstractContextManager[None]:
        return self._file.lock(self._name)


def _open(path: Path | str) -> int:
    """Return a descriptor of a file, which is created for its owner alone if it is missing."""
    return os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
