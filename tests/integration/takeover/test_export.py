"""``wakupush export reference``: a database that the reference reads, and an import takes back."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.imported import ROWS, expected_of, objects, state
from support.reference_database import CONTENT, IDENTITY_OF, KEY
from support.stored import contents
from wakupush.devnet import messages
from wakupush.model.registrations import Change, Unregistration
from wakupush.model.roles import Role
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import of
from wakupush.runtime import keyfile
from wakupush.server.registration import loading
from wakupush.takeover import database, exporting
from wakupush.takeover.schema import REGISTRATIONS, REQUESTS


class TestExport:
    @pytest.fixture
    def second(self, new_dsn, monkeypatch):
        """Another database of the same server, which the command writes to from then on."""

        def second():
            dsn = new_dsn()
            monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.REBUILD))
            return psycopg.connect(dsn, autocommit=True)

        return second

    def fill(self, run, connection):
        run("reference.db")
        place, _ = expected_of(ROWS[0])
        connection.execute(
            "UPDATE registrations SET request_digest = %s WHERE key_hash = %s AND installation_hash = %s",
            [b"d" * 16, place.key_hash, place.installation_hash],
        )

    @pytest.mark.parametrize("words", [(), ("--password-file", "password")], ids=["plain", "encrypted"])
    def test_the_import_of_an_export_gives_the_same_rows(self, run, connection, second, tmp_path, words):
        self.fill(run, connection)
        path = tmp_path / "export.db"
        exported = json.loads(run(str(path), "--json", *words, command="export").stdout)
        assert (exported["registered"], exported["unregistered"], exported["requests"]) == (14, 2, 6)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes().startswith(b"SQLite format 3\0") == (not words)
        before = contents(connection, IDENTITY_OF)
        with second() as other:
            _, totals = objects(run(str(path), "--json", *words))
            assert (totals["taken"], totals["refused"]) == (16, 0)
            assert contents(other, IDENTITY_OF) == before
            run(str(path), "--compare", *words)
            ids = "SELECT message_id, expired FROM admitted_requests ORDER BY 1"
            assert other.execute(ids).fetchall() == connection.execute(ids).fetchall()
            assert state(other) == state(connection)

    def test_it_is_what_the_reference_reads(self, run, connection, tmp_path):
        self.fill(run, connection)
        run(str(tmp_path / "export.db"), command="export")
        with closing(sqlite3.connect(tmp_path / "export.db")) as reference:
            rows = reference.execute(
                "SELECT public_key, installation_id, version, registration FROM push_notification_server_registrations"
            ).fetchall()
            [(key,)] = reference.execute("SELECT private_key FROM push_notification_server_identity")
            schema = {sql for (sql,) in reference.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        assert key == KEY.secret
        assert {sql for sql in CONTENT["schema"] if "_server_" in sql and "default" not in sql} <= schema
        theirs = {(row["public_key"], row["installation_id"]): row for row in ROWS if row["registration"]}
        assert {(row[0].hex(), row[1]) for row in rows} == theirs.keys()
        for key_hash, installation_id, version, data in rows:
            row = theirs[key_hash.hex(), installation_id]
            was = PushNotificationRegistration.FromString(bytes.fromhex(row["registration"]))
            now = PushNotificationRegistration.FromString(data)
            assert (version, now.version) == (int(row["version"]), int(row["version"]))
            for name in ("blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list"):
                was.ClearField(name)
            was.DiscardUnknownFields()
            assert now == was

    def test_its_rows_are_brought_over_as_the_page_says(self, run, connection, tmp_path, folder):
        """Into the reference's old file: who unregistered since is not back, and ids stay whole. Twice is as once."""
        self.fill(run, connection)
        [user_place] = [place for place, (_, device, _) in map(expected_of, ROWS) if device is not None][:1]
        change = Change(user_place, b"", Unregistration(installation_id="", version=2**62))
        assert loading.load(connection, [change], IDENTITY_OF.at_rest).stored == 1
        connection.execute(
            "INSERT INTO admitted_requests (message_id, succeeded, expired) VALUES (%s, '', true)", [b"n" * 16]
        )
        run(str(tmp_path / "export.db"), command="export")
        page = (Path(__file__).parents[3] / "docs" / "operating" / "takeover.md").read_text()
        [statements] = re.findall(r'"(ATTACH .*?)"', page, re.DOTALL)
        with closing(sqlite3.connect(folder / "reference.db", isolation_level=None)) as reference:
            before = {id_ for (id_,) in reference.execute(f"SELECT id FROM {REQUESTS}")}
            for _ in range(2):
                reference.executescript(statements.replace("PATH", str(tmp_path / "export.db")))
                registered = f"SELECT count(*) FROM {REGISTRATIONS} WHERE registration IS NOT NULL"
                assert reference.execute(registered).fetchone() == (13,)
                after = {id_ for (id_,) in reference.execute(f"SELECT id FROM {REQUESTS}")}
                assert after == before | {id_[:16] for id_ in before} | {b"n" * 16}
                reference.execute("DETACH ours")
        # The reference's own file, with its rows back, is what an import reads.
        _, totals = objects(run("reference.db", "--json"))
        # What was refused here is unregistered there, by its version.
        assert (totals["taken"], totals["stored_already"], totals["refused"]) == (1, 16, 0)
        assert totals["requests_taken"] == 0

    def test_it_says_what_is_not_in_it(self, run, connection, tmp_path):
        self.fill(run, connection)
        text = run(str(tmp_path / "export.db"), command="export").stdout
        assert "muted and blocked chats" in text
        assert "registered    14" in text

    def test_export_omits_unstorable_versions(self, run, connection, tmp_path):
        self.fill(run, connection)
        connection.execute("UPDATE registrations SET version = 2::numeric ^ 63 WHERE NOT registered")
        registration = of(messages.registration(PrivateKey.generate(), KEY.public_key, version=2**63))
        change = Change(IDENTITY_OF.installation(b"k" * 64, registration.installation_id), b"", registration)
        assert loading.load(connection, [change], IDENTITY_OF.at_rest).stored == 1
        exported = json.loads(run(str(tmp_path / "export.db"), "--json", command="export").stdout)
        # Of an unregistration the reference is told no version at all.
        assert (exported["registered"], exported["unregistered"], exported["refused"]) == (14, 2, 1)

    def test_no_file_is_written_over_and_none_is_left_half(self, run, connection, tmp_path, monkeypatch):
        self.fill(run, connection)
        there = tmp_path / "there"
        there.write_text("something")
        assert "cannot be written" in run(str(there), expect=2, command="export").stderr
        assert there.read_text() == "something"
        other = tmp_path / "other.key"
        keyfile.write(other, PrivateKey.generate().secret)
        monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY_FILE", str(other))
        run(str(tmp_path / "export.db"), expect=2, command="export")
        assert not (tmp_path / "export.db").exists()

    @pytest.mark.parametrize("words", [(), ("--password-file", "password")], ids=["plain", "encrypted"])
    def test_a_full_disk(self, run, connection, tmp_path, monkeypatch, words):
        self.fill(run, connection)
        create = database.create

        def small(*arguments):
            writer = create(*arguments)
            # A journal that stays, as one does where there is no room to undo.
            writer.execute("PRAGMA journal_mode = persist")
            writer.execute("PRAGMA max_page_count = 13")
            return writer

        monkeypatch.setattr(exporting.database, "create", small)
        result = run(str(tmp_path / "export.db"), *words, expect=2, command="export")
        assert "export.db cannot be written: OperationalError" in result.stderr
        assert not list(tmp_path.glob("export.db*"))

    def test_how_often_the_password_is_hashed(self, run, connection, tmp_path):
        self.fill(run, connection)
        path, words = str(tmp_path / "export.db"), ("--password-file", "password")
        run(path, *words, "--kdf-iterations", "4001", command="export")
        assert "--kdf-iterations" in run(path, *words, "--compare", expect=2).stderr
        run(path, *words, "--kdf-iterations", "4001", "--compare")
        run(path, *words, "--kdf-iterations", "0", "--compare", expect=2)
