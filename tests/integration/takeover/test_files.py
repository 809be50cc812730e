"""Files that are no database of the reference's, or are not whole: what an import says of them."""

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support import reference_database
from support.imported import NOTHING, state
from support.reference_database import DAEMON, PUSH_SERVER
from wakupush.takeover import database
from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.schema import CREATE, REQUESTS


class TestFiles:
    """Files that are not what they should be: a clear error, and nothing is written."""

    @pytest.fixture
    def refuse(self, run, connection):
        def refuse(says, *words):
            result = run(*words, expect=2)
            assert says in result.stderr
            assert "Traceback" not in result.stderr
            assert state(connection) == NOTHING

        return refuse

    def test_a_copy_of_the_main_file_alone(self, refuse, folder):
        (folder / "live/reference.db-wal").unlink()
        refuse("not one row. its server leaves rows in the -wal", "live/reference.db")
        (folder / "live/reference.db-shm").unlink()
        refuse("not one row", "live/reference.db")

    @pytest.mark.parametrize(
        "words",
        [
            (DAEMON, "--config", "statusd/statusd.json"),
            (PUSH_SERVER, "--identity-file", "push-notification-server/identity"),
        ],
        ids=["statusd", "push-notification-server"],
    )
    def test_a_daemons_file_without_its_wal_is_warned_of(self, run, folder, words):
        (folder / f"{words[0]}-wal").unlink()
        assert "its last changes are missing" in run(*words).stderr

    def test_missing_wal_of_an_encrypted_file_warns(self, run, folder):
        words = ("reference-sqlcipher.db", "--password-file", "password")
        assert "its last changes are missing" in run(*words).stderr
        (folder / "reference-sqlcipher.db-wal").touch()
        assert "its last changes" not in run(*words).stderr

    def test_the_wal_belongs_to_what_a_link_leads_to(self, run, folder, connection):
        (folder / "link.db").symlink_to("live/reference.db")
        result = run("link.db")
        assert "its last changes" not in result.stderr
        assert state(connection)["registrations"] == 16

    def test_view_in_place_of_a_table(self, refuse, folder):
        """It could run whatever its author likes, for ever."""
        with closing(sqlite3.connect(folder / "hostile.db")) as writer:
            writer.executescript(f"{CREATE} DROP TABLE {REQUESTS}; CREATE VIEW {REQUESTS} AS SELECT x'00' AS id;")
        refuse("a view in the place of a table", "hostile.db")

    def test_checks_end(self, folder, monkeypatch):
        with database.open_database(folder / "live/reference.db", None):
            pass
        monkeypatch.setattr(database, "_CHECK_SECONDS", -1e9)
        monkeypatch.setattr(database, "_STEPS", 1)
        opened = database.open_database(folder / "live/reference.db", None)
        with pytest.raises(TakeoverError, match="takes too long"), opened:
            pass

    def test_links_in_a_circle(self, refuse, folder):
        (folder / "circle.db").symlink_to("circle.db")
        refuse("cannot be read", str(folder / "circle.db"))

    @pytest.mark.parametrize("bytes_", [10, 32 + 24 + 4096 + 5, -1, -2000])
    def test_a_truncated_wal(self, refuse, folder, bytes_):
        wal = folder / f"{DAEMON}-wal"
        os.truncate(wal, bytes_ % wal.stat().st_size)
        refuse("-wal is truncated", DAEMON, "--config", "statusd/statusd.json")

    def test_a_truncated_wal_of_an_encrypted_file(self, refuse, folder):
        path = folder / "reference-sqlcipher.db"
        with closing(database.module_for(reference_database.PASSWORD).connect(path)) as writer:
            database._unlock(writer, reference_database.PASSWORD, database.KDF_ITERATIONS)
            writer.execute("PRAGMA journal_mode = wal")
            writer.execute(f"DELETE FROM {REQUESTS}")
            writer.commit()
            shutil.copy(path, folder / "cut.db")
            shutil.copy(f"{path}-wal", folder / "cut.db-wal")
        os.truncate(folder / "cut.db-wal", (folder / "cut.db-wal").stat().st_size - 1)
        refuse("-wal is truncated", "cut.db", "--password-file", "password")

    def test_how_often_a_password_is_hashed(self, run, refuse, folder, connection):
        with closing(database.create(folder / "often.db", reference_database.PASSWORD, 4001)) as writer:
            reference_database.fill(writer, [], [b"x" * 32])
        refuse("--kdf-iterations", "often.db", "--password-file", "password")
        run("often.db", "--password-file", "password", "--kdf-iterations", "4001")
        assert state(connection)["admitted_requests"] == 1

    def test_a_wrong_password(self, refuse, folder):
        (folder / "wrong").write_text("it's wrong")
        refuse("the password is wrong", "reference-sqlcipher.db", "--password-file", "wrong")
        refuse("give its password by --password-file", "reference-sqlcipher.db")
        (folder / "wrong").write_text("\n")
        refuse("holds no password", "reference-sqlcipher.db", "--password-file", "wrong")
        refuse("cannot be read", "reference-sqlcipher.db", "--password-file", str(folder / "nowhere"))

    def test_without_sqlcipher(self, refuse, monkeypatch):
        monkeypatch.setitem(sys.modules, "sqlcipher3", None)
        refuse("install wakupush[reference]", "reference-sqlcipher.db", "--password-file", "password")

    @pytest.mark.parametrize("name", ["reference.db", "reference-sqlcipher.db"])
    @pytest.mark.parametrize("share", [0.0, 0.000005, 0.1, 0.5, 0.97, 0.9999])
    def test_truncated(self, refuse, folder, name, share):
        path = folder / name
        os.truncate(path, int(path.stat().st_size * share))
        words = [] if name == "reference.db" else ["--password-file", "password"]
        refuse("", name, *words)

    def test_damaged(self, refuse, folder):
        for name in ("reference.db", "reference-sqlcipher.db"):
            data = bytearray((folder / name).read_bytes())
            at = data.find(b"im.status.ethereum") if name == "reference.db" else len(data) // 2
            # In the clear only what is no page is told from other content.
            page = slice(at // 4096 * 4096, at // 4096 * 4096 + 100)
            data[page] = os.urandom(100)
            (folder / name).write_bytes(data)
        refuse("damaged", "reference.db")
        refuse("damaged", "reference-sqlcipher.db", "--password-file", "password")

    def test_no_file_or_no_database(self, refuse, folder):
        refuse("cannot be read", str(folder / "nowhere.db"))
        refuse("is a folder: give the database in it, 02….db", "live")
        refuse("is encrypted, or no database", "statusd/statusd.json")
        (folder / "short").write_bytes(b"SQLite")
        refuse("truncated", "short")

    def test_another_program(self, refuse, folder):
        with closing(sqlite3.connect(folder / "other.db")) as connection:
            connection.execute("CREATE TABLE places (id)")
        refuse("it is of another program", "other.db")

    def test_the_wallet_of_push_notification_server(self, refuse):
        wallet = PUSH_SERVER.replace("-app", "-wallet")
        refuse(f"is the database of a wallet: the server's is {Path(PUSH_SERVER).name} beside it", wallet)

    @pytest.mark.parametrize(
        "change",
        [
            "ALTER TABLE push_notification_server_registrations ADD COLUMN more",
            "ALTER TABLE push_notification_server_registrations RENAME COLUMN version TO clock",
            "DROP TABLE push_notification_server_notifications",
        ],
    )
    def test_another_schema(self, refuse, folder, change):
        with closing(sqlite3.connect(folder / "reference.db")) as connection:
            connection.execute(change)
            connection.commit()
        refuse("has another schema", "reference.db")

    def test_another_schema_of_ours(self, run, empty_dsn, monkeypatch):
        monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", empty_dsn)
        assert "run `wakupush migrate`" in run("reference.db", expect=2).stderr

    def test_no_database_of_ours(self, run, monkeypatch):
        monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", "postgresql://somebody:the-password@127.0.0.1:1/wakupush")
        result = run("reference.db", expect=2)
        assert "does not answer" in result.stderr
        assert "the-password" not in result.output
