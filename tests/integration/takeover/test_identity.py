"""Whose key the imported rows belong to, and where an import finds it."""

import json

import pytest

from support.imported import NOTHING, state
from support.reference_database import DAEMON, IDENTITY_OF, KEY
from support.stored import contents
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile


class TestIdentity:
    def test_it_is_in_the_configuration(self, run, connection):
        assert "give the configuration of statusd by --config" in run(DAEMON, expect=2).stderr
        assert state(connection) == NOTHING

    def test_it_has_to_be_the_servers(self, run, connection, monkeypatch, tmp_path):
        other = tmp_path / "other.key"
        keyfile.write(other, PrivateKey.generate().secret)
        monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY_FILE", str(other))
        result = run("reference.db", "--identity-out", str(tmp_path / "new.key"), expect=2)
        assert "without the same key every grant in it is worthless" in result.stderr
        assert not (tmp_path / "new.key").exists()
        monkeypatch.delenv("WAKUPUSH_IDENTITY_KEY_FILE")
        assert "no private key" in run("reference.db", expect=2).stderr
        assert state(connection) == NOTHING

    def test_it_has_to_be_the_one_that_ingest_listens_by(self, run, connection, monkeypatch):
        monkeypatch.setenv("WAKUPUSH_PUBLIC_KEY", str(PrivateKey.generate().public_key))
        assert "ingest would not listen for this one" in run("reference.db", expect=2).stderr
        assert state(connection) == NOTHING

    def test_that_of_the_configuration_counts(self, run, connection, tmp_path):
        config = tmp_path / "statusd.json"
        config.write_text(json.dumps({"NodeKey": PrivateKey.generate().secret.hex()}))
        assert "every grant in it is worthless" in run("reference.db", "--config", str(config), expect=2).stderr
        assert state(connection) == NOTHING

    @pytest.mark.parametrize(
        "text", ["", "{}", "[]", '{"NodeKey": 1}', '{"NodeKey": "abc"}', '{"NodeKey": null}', "\xff"]
    )
    def test_a_configuration_without_a_key(self, run, text, tmp_path):
        config = tmp_path / "statusd.json"
        config.write_text(text, encoding="latin-1")
        assert "is no configuration of statusd with a NodeKey" in run(DAEMON, "--config", str(config), expect=2).stderr

    def test_it_is_written_as_keygen_does(self, run, connection, monkeypatch, tmp_path):
        written = tmp_path / "written.key"
        # The settings name the file that is to be written.
        monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY_FILE", str(written))
        run(DAEMON, "--config", "statusd/statusd.json", "--identity-out", str(written))
        assert keyfile.read(written, PrivateKey).secret == KEY.secret
        assert written.stat().st_mode & 0o777 == 0o600
        assert state(connection)["registrations"] == 16
        # Once more, by the same words.
        run(DAEMON, "--config", "statusd/statusd.json", "--identity-out", str(written))

    def test_no_file_is_written_over(self, run, connection, tmp_path):
        there = tmp_path / "there"
        there.write_text("something else")
        run("reference.db", "--identity-out", str(there), expect=2)
        keyfile.write(tmp_path / "another", PrivateKey.generate().secret)
        run("reference.db", "--identity-out", str(tmp_path / "another"), expect=2)
        assert there.read_text() == "something else"
        assert state(connection) == NOTHING

    def test_identity_defaults_to_the_databases_key(self, run, connection, monkeypatch, tmp_path):
        monkeypatch.delenv("WAKUPUSH_IDENTITY_KEY_FILE")
        run("reference.db", "--identity-out", str(tmp_path / "new"))
        assert len(contents(connection, IDENTITY_OF)) == 16
