"""Databases of the reference server: those that it made itself, in tests/reference, and made-up ones."""

import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.takeover.schema import CREATE, IDENTITY, REGISTRATIONS, REQUESTS

HERE = Path(__file__).parents[1] / "reference"
#: What is in them, as JSON.
CONTENT = json.loads((HERE / "reference.json").read_text())
KEY = PrivateKey.from_hex(CONTENT["identity"]["private_key"])
IDENTITY_OF = Identity.of(KEY)
PASSWORD = "fixture-password"
DAEMON = "statusd/02121e0b-cdf3-0b4a-1cc7-e166eb37a8a1.db"
#: The same database under the names of push-notification-server, whose tables of this server are statusd's.
PUSH_SERVER = "push-notification-server/02121e0b-cdf3-0b4a-1cc7-e166eb37a8a1-app.db"


def unpack(folder):
    """Put the databases that the reference made into a folder."""
    with tarfile.open(HERE / "databases.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # of Python 3.11.4
        archive.extractall(folder)  # noqa: S202 - it is our own
    (folder / "password").write_text(PASSWORD + "\n")
    _add_push_server(folder)
    return folder


def _add_push_server(folder):
    app = folder / PUSH_SERVER
    app.parent.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(folder / f"{DAEMON}{suffix}", f"{app}{suffix}")
    with closing(sqlite3.connect(app.with_name(app.name.replace("-app", "-wallet")))) as connection:
        connection.execute("CREATE TABLE transfers (hash VARCHAR NOT NULL)")
    (app.parent / "identity").write_text(f"{KEY.secret.hex()}\n")


def make(path, rows=(), requests=(), key=KEY):
    """Make a database with these rows: hash of the key, installation id, version, registration."""
    with closing(sqlite3.connect(path)) as connection:
        fill(connection, rows, requests, key)
    return path


def fill(connection, rows=(), requests=(), key=KEY):
    """Put the tables and these rows into an empty database."""
    connection.executescript(CREATE)
    connection.execute(f"INSERT INTO {IDENTITY} (private_key) VALUES (?)", [key.secret])
    connection.executemany(f"INSERT INTO {REGISTRATIONS} VALUES (?, ?, ?, ?)", rows)
    connection.executemany(f"INSERT INTO {REQUESTS} VALUES (?)", [(request,) for request in requests])
    connection.commit()


def row(client, content):
    """Return the row of a registration."""
    return client.public_key.key_hash, content.installation_id, content.version, content.SerializeToString()
