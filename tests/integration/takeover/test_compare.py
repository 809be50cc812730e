"""``wakupush import reference --compare``: what differs between the reference's rows and ours."""

from contextlib import contextmanager

from support import reference_database
from support.imported import REFUSED, ROWS, expected_of, objects
from support.reference_database import IDENTITY_OF, KEY
from support.stored import contents
from wakupush.cli import reference as commands
from wakupush.devnet import messages
from wakupush.model.registrations import Change
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import of
from wakupush.server.registration import loading


class TestCompare:
    def test_what_was_imported_does_not_differ(self, run):
        run("reference.db")
        differences, totals = objects(run("live/reference.db", "--compare", "--json", expect=1))
        assert totals == {"differences": {"refused": 1}}
        assert differences[0]["installation_id"] == REFUSED[1]

    def test_nothing_differs(self, run, folder):
        client = PrivateKey.generate()
        reference_database.make(
            folder / "one.db", [reference_database.row(client, messages.registration(client, KEY.public_key))]
        )
        run("one.db")
        assert "differences  0" in run("one.db", "--compare").stdout

    def test_each_kind(self, run, folder, connection):
        client = PrivateKey.generate()
        missing, changed, newer, older, leaver, back, here = (
            messages.registration(client, KEY.public_key, version=5) for _ in range(7)
        )
        reference_database.make(
            folder / "first.db",
            [reference_database.row(client, each) for each in (changed, newer, older, leaver, back, here)],
        )
        run("first.db")
        changed.muted_chat_list.append(b"muted")
        changed.device_token = "another"
        changed.enabled = False
        newer.version, older.version = 6, 4
        rows = [reference_database.row(client, each) for each in (missing, changed, newer, older, back)]
        rows.append((client.public_key.key_hash, leaver.installation_id, 5, None))
        reference_database.make(folder / "second.db", rows)
        before = contents(connection, IDENTITY_OF)
        differences, totals = objects(run("second.db", "--compare", "--json", expect=1))
        assert {(each["kind"], each["installation_id"], tuple(each["details"])) for each in differences} == {
            ("missing", missing.installation_id, ()),
            ("content", changed.installation_id, ("device_token", "enabled", "muted_chat_list")),
            ("newer there", newer.installation_id, ()),
            ("newer here", older.installation_id, ()),
            ("registered or not", leaver.installation_id, ()),
            ("only here", here.installation_id, ()),
        }
        assert set(totals["differences"].values()) == {1}
        assert contents(connection, IDENTITY_OF) == before
        assert "another" not in run("second.db", "--compare", expect=1).stdout

    def test_requests_that_are_missing(self, run, folder, connection):
        reference_database.make(folder / "requests.db", requests=[bytes([number]) * 32 for number in range(5)])
        run("requests.db")
        run("requests.db", "--compare")
        connection.execute("DELETE FROM admitted_requests WHERE message_id < %s", [bytes([2])])
        differences, totals = objects(run("requests.db", "--compare", "--json", expect=1))
        assert (differences, totals) == ([], {"differences": {"request missing": 2}})

    def test_unregistrations_of_an_export_of_ours(self, run, tmp_path, connection):
        run("reference.db")
        export = str(tmp_path / "export.db")
        run(export, command="export")
        run(export, "--compare")
        [deleted_row, _] = connection.execute(
            "DELETE FROM registrations WHERE NOT registered RETURNING key_hash"
        ).fetchall()
        differences, totals = objects(run(export, "--compare", "--json", expect=1))
        assert totals == {"differences": {"missing": 2}}
        assert (deleted_row[0].hex(), None) in {(each["key_hash"], each["installation_id"]) for each in differences}
        run(export)
        run(export, "--compare")
        connection.execute("UPDATE registrations SET version = version - 1 WHERE NOT registered")
        _, totals = objects(run(export, "--compare", "--json", expect=1))
        assert totals == {"differences": {"newer there": 2}}

    def test_what_is_registered_again_is_told_once(self, run, tmp_path, connection):
        run("reference.db")
        export = str(tmp_path / "export.db")
        run(export, command="export")
        [place] = [place for place, (_, device, _) in map(expected_of, ROWS) if device is None][:1]
        registration = of(messages.registration(PrivateKey.generate(), KEY.public_key, version=2**62))
        change = Change(place, b"", registration)
        assert loading.load(connection, [change], IDENTITY_OF.at_rest).stored == 1
        _, totals = objects(run(export, "--compare", "--json", expect=1))
        assert totals == {"differences": {"newer here": 1}}

    def test_progress_is_rows(self, run, monkeypatch, tmp_path):
        bars = []

        @contextmanager
        def bar(what, total):
            advances = []
            bars.append((what, total, advances))
            yield advances.append

        run("reference.db")
        run(str(tmp_path / "export.db"), command="export")
        monkeypatch.setattr(commands, "advancing_bar", bar)
        run("reference.db", "--compare", expect=1)
        run(str(tmp_path / "export.db"), "--compare")
        assert [(what, total, sum(advances)) for what, total, advances in bars] == [("rows", 23, 23), ("rows", 22, 22)]

    def test_with_a_dry_run_it_makes_no_sense(self, run):
        run("reference.db", "--compare", "--dry-run", expect=2)
