"""Whose key the imported rows belong to, and where an import finds it."""

import json

import pytest

from support.imported import NOTHING, state
from support.reference_database import DAEMON, IDENTITY_OF, KEY, PUSH_SERVER
from support.stored import contents
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile


class TestIdentity:
    def test_it_is_in_the_configuration(self, run, connection):
        assert "or the configuration of statusd by --config" in run(DAEMON, expect=2).stderr
        assert state(connection) == NOTHING

    def test_push_notification_servers_key_is_in_the_environment(self, run, connection, monkeypatch, tmp_path):
        assert "by --identity-file, or by STATUS_GO_NODE_KEY" in run(PUSH_SERVER, expect=2).stderr
        monkeypatch.delenv("WAKUPUSH_IDENTITY_KEY_FILE")
        monkeypatch.setenv("STATUS_GO_NODE_KEY", KEY.secret.hex())
        written = tmp_path / "written.key"
        run(PUSH_SERVER, "--identity-out", str(written))
        assert keyfile.read(written, PrivateKey.from_hex).secret == KEY.secret
        assert len(contents(connection, IDENTITY_OF)) == 16

    def test_a_file_counts_before_the_environment(self, run, connection, monkeypatch):
        monkeypatch.setenv("STATUS_GO_NODE_KEY", PrivateKey.generate().secret.hex())
        run(PUSH_SERVER, "--identity-file", "push-notification-server/identity", "--dry-run")
        run(DAEMON, "--config", "statusd/statusd.json", "--dry-run")
        # A database may hold a key too; its server never looked there.
        assert "every grant in it is worthless" in run("reference.db", expect=2).stderr
        assert state(connection) == NOTHING

    @pytest.mark.parametrize("digits", ["{}", "abc", f"{KEY.secret.hex()}ab", "0" * 64, "g" * 64, "é"])
    def test_what_is_no_key_is_refused_and_never_printed(self, run, connection, monkeypatch, digits, tmp_path):
        (tmp_path / "digits").write_text(digits)
        from_file = run(PUSH_SERVER, "--identity-file", str(tmp_path / "digits"), expect=2)
        assert f"{tmp_path / 'digits'} holds no private key" in from_file.stderr.replace("\n", "")
        monkeypatch.setenv("STATUS_GO_NODE_KEY", digits)
        from_environment = run(PUSH_SERVER, expect=2)
        assert "STATUS_GO_NODE_KEY holds no key of 64 hex digits" in from_environment.stderr
        assert state(connection) == NOTHING
        for result in (from_file, from_environment):
            assert len(digits) < 10 or digits not in result.output.replace("\n", "")

    def test_an_identity_file_that_is_not_there(self, run, tmp_path):
        missing = str(tmp_path / "missing")
        assert "cannot be read: No such file" in run(PUSH_SERVER, "--identity-file", missing, expect=2).stderr

    def test_one_file_names_the_key(self, run):
        words = ("--identity-file", "push-notification-server/identity", "--config", "statusd/statusd.json")
        assert "both name the server's key: give one" in run(PUSH_SERVER, *words, expect=2).stderr

    @pytest.mark.parametrize("name", [DAEMON, PUSH_SERVER])
    def test_the_files_name_has_to_be_of_the_key(self, run, connection, monkeypatch, name, tmp_path):
        other = PrivateKey.from_hex("3e64442a0ba8a59b4d2dc7385cd4533a10e86dd644e7ec549cb92503787f5282")
        monkeypatch.delenv("WAKUPUSH_IDENTITY_KEY_FILE")
        monkeypatch.setenv("STATUS_GO_NODE_KEY", other.secret.hex())
        result = run(name, "--identity-out", str(tmp_path / "new.key"), expect=2)
        ending = "-app.db" if name == PUSH_SERVER else ".db"
        assert f"it would be 03b67a6c-e39b-7515-b0f5-31e24afc8492{ending}" in result.stderr
        assert other.secret.hex() not in result.output
        assert not (tmp_path / "new.key").exists()
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
        assert keyfile.read(written, PrivateKey.from_hex).secret == KEY.secret
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
