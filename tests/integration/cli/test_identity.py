"""``wakupush identity``: files with keys, and the devices that are registered under each."""

import json

import pytest
from psycopg.conninfo import make_conninfo

from support import commands
from wakupush.model.roles import Role
from wakupush.operate import identities
from wakupush.protocol.identity import Identity, parse, to_text
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile

FIRST = Identity.of(PrivateKey(b"\2" * 32))


@pytest.fixture
def run(dsn, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.OPERATOR))
    return lambda *words, **options: commands.run("identity", *words, **options).output


@pytest.fixture
def file(tmp_path):
    """A file with two keys."""
    path = tmp_path / "identity.key"
    keyfile.write_text(path, to_text(identities.rotate(FIRST)))
    return path


def register(connection, *server_keys, registered=True):
    for number, server_key in enumerate(server_keys):
        connection.execute(
            "INSERT INTO registrations (key_hash, installation_hash, version, request_digest, registered, server_key)"
            " VALUES (%s, %s, 1, '', %s, %s)",
            [number.to_bytes(64, "big"), b"registered" if registered else b"not", registered, server_key],
        )


def read(path):
    return keyfile.read(path, parse)


def test_status_counts_the_devices_of_each_key(run, connection, file, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY_FILE", str(file))
    identity = read(file)
    today = identity.id_of(identity.public_key)
    register(connection, None, None, today, b"lost key")
    register(connection, None, today, registered=False)
    listing = [json.loads(line) for line in run("status", "--json").splitlines()]
    assert listing == [
        {"public_key": str(identity.public_key), "today": True, "registered": 1},
        {"public_key": str(FIRST.public_key), "today": False, "registered": 2},
        {"public_key": None, "today": False, "registered": 1},
    ]
    text = run("status")
    assert str(FIRST.public_key) in text
    assert "lost" in text


def test_retire_waits_for_the_last_device(run, connection, file, tmp_path):
    identity = read(file)
    register(connection, None, identity.id_of(identity.public_key))
    new = tmp_path / "new.key"
    assert "earlier keys: 1;" in run("retire", file, new, expect=1)
    assert not new.exists()
    assert str(identity.public_key) in run("retire", file, new, "--force")
    assert (read(new).public_key, read(new).previous) == (identity.public_key, ())
    assert read(new).root.secret == FIRST.root.secret
    assert "none to retire" in run("retire", new, tmp_path / "newer", expect=2)


def test_rotate_prints_the_settings_and_overwrites_no_file(run, file, tmp_path):
    before = read(file)
    new = tmp_path / "new.key"
    output = run("rotate", file, new)
    identity = read(new)
    assert [key.public_key for key in identity.previous] == [before.public_key, FIRST.public_key]
    assert f"WAKUPUSH_PUBLIC_KEY={identity.public_key}\n" in output
    assert f'WAKUPUSH_PREVIOUS_PUBLIC_KEYS=\'["{before.public_key}", "{FIRST.public_key}"]\'\n' in output
    assert new.stat().st_mode & 0o777 == 0o600
    assert not any(secret in output for secret in new.read_text().split() if len(secret) == 64)
    assert "exists already" in run("rotate", file, new, expect=2)
    assert read(new).public_key == identity.public_key
