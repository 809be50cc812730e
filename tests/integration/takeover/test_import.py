"""``wakupush import reference``: everything that the reference's databases hold, and what is wrong with others."""

import json
import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from redis import Redis
from typer.testing import CliRunner

from support import reference_database as made
from support.reference_database import CONTENT, DAEMON, IDENTITY_OF, KEY
from support.served import rewrapped
from support.stored import contents
from wakupush.cli import app
from wakupush.cli import reference as commands
from wakupush.devnet.demo import messages
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.model.registrations import Change, Registration, Unregistration
from wakupush.model.roles import Role
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryInfo,
    PushNotificationQueryResponse,
    PushNotificationRegistration,
)
from wakupush.postgres import query_topics, registrations
from wakupush.protocol import payload
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.query import reveal
from wakupush.protocol.registration import of
from wakupush.redis import watched
from wakupush.runtime import keyfile
from wakupush.server import loading
from wakupush.takeover import database, exporting, source
from wakupush.takeover.schema import REGISTRATIONS, REQUESTS

FIXTURES = {
    "plain": ("reference.db",),
    "in use": ("live/reference.db",),
    "of the daemon": (DAEMON, "--config", "statusd/statusd.json"),
    "encrypted": ("reference-sqlcipher.db", "--password-file", "password"),
}
#: What this server refuses of them: a type of token that the specification does not know.
REFUSED = ("judy", "3ddd5c1d-1292-09fd-52a2-4d1545e5345c")
ROWS = [row for row in CONTENT["registrations"] if (row["user"], row["installation_id"]) != REFUSED]
TABLES = ("registrations", "query_topics", "admitted_requests")


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    return made.unpack(tmp_path_factory.mktemp("reference"))


@pytest.fixture
def folder(originals, tmp_path):
    return shutil.copytree(originals, tmp_path / "reference")


@pytest.fixture
def environment(dsn, redis_server, monkeypatch, tmp_path):
    """The settings of the server whose database it is, as the role that imports."""
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.REBUILD))
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", redis_server.url)
    monkeypatch.setenv("COLUMNS", "80")
    key_file = tmp_path / "identity.key"
    keyfile.write(key_file, KEY.secret)
    monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY_FILE", str(key_file))


@pytest.fixture
def run(environment, folder):  # noqa: ARG001 - the settings
    def run(*words, expect=0, command="import"):
        arguments = [str(folder / word) if (folder / word).exists() else word for word in words]
        result = CliRunner().invoke(app, [command, "reference", *arguments])
        assert result.exit_code == expect, result.output
        return result

    return run


def objects(result):
    *told, totals = map(json.loads, result.stdout.splitlines())
    return told, totals


def state(connection):
    """Return how many rows each table has that an import writes to."""
    return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


NOTHING = dict.fromkeys(TABLES, 0)


def expected_of(row):
    """What is to be stored of a row of the fixtures: version, device, allowed_key_list, digests and flags."""
    place = IDENTITY_OF.installation(bytes.fromhex(row["public_key"]), row["installation_id"])
    if row["registration"] is None:
        return place, (int(row["version"]), None, None)
    registration = of(PushNotificationRegistration.FromString(bytes.fromhex(row["registration"])))
    return place, (int(row["version"]), registration, registration.allowed_key_list or None)


@pytest.mark.parametrize("words", FIXTURES.values(), ids=FIXTURES)
def test_every_row_is_what_the_reference_has(run, connection, words):
    told, totals = objects(run(*words, "--json"))
    assert (totals["taken"], totals["refused"], totals["requests_taken"]) == (16, 1, 6)
    found = contents(connection, IDENTITY_OF)
    assert len(found) == len(ROWS) == 16
    for row in ROWS:
        place, (version, registration, allowed) = expected_of(row)
        stored_version, device, stored_allowed, columns = found[place]
        assert (stored_version, columns["registered"]) == (version, registration is not None)
        assert stored_allowed == allowed
        if registration is None:
            assert device is None
            continue
        for name in ("installation_id", "device_token", "access_token", "grant", "apn_topic"):
            assert getattr(device, name) == getattr(registration, name), name
        for name in ("token_type", "enabled", "allow_from_contacts_only", "block_mentions"):
            assert columns[name] == getattr(registration, name), name
        at_rest = IDENTITY_OF.at_rest
        assert columns["access_token_digest"] == at_rest.access_token(place, registration.access_token)
        for name, column in (
            ("blocked_chat_list", "blocked_chat_digests"),
            ("muted_chat_list", "muted_chat_digests"),
            ("allowed_mentions_chat_list", "allowed_mentions_chat_digests"),
        ):
            assert columns[column] == at_rest.list_digests(place, getattr(registration, name)), name
    ids = {id_ for (id_,) in connection.execute("SELECT message_id FROM admitted_requests WHERE expired")}
    assert ids == {bytes.fromhex(each["id"])[:16] for each in CONTENT["notifications"]}
    assert {(each["reason"], each["taken"]) for each in told} == {
        ("token_type_unsupported", False),
        ("apn_topic_invalid", True),
        ("unknown_fields", True),
    }


@pytest.mark.parametrize("user", CONTENT["query_answers_of_the_reference"])
def test_a_query_learns_what_it_learnt_from_the_reference(run, connection, user):
    run("reference.db")
    theirs = [
        PushNotificationQueryInfo(
            access_token=each["access_token"],
            installation_id=each["installation_id"],
            public_key=bytes.fromhex(each["public_key"]),
            allowed_key_list=map(bytes.fromhex, each["allowed_key_list"]),
            grant=bytes.fromhex(each["grant"]),
            version=int(each["version"]),
        )
        for each in CONTENT["query_answers_of_the_reference"][user]
        if (user, each["installation_id"]) != REFUSED
    ]
    [key_hash] = {bytes.fromhex(row["public_key"]) for row in CONTENT["registrations"] if row["user"] == user} or {b""}
    devices = registrations.devices(connection, [key_hash], IDENTITY_OF.at_rest).get(key_hash, [])
    ours = [reveal(device) for device in devices]
    assert sorted(map(str, ours)) == sorted(map(str, theirs))


def test_one_installation_id_in_upper_and_lower_case_is_two_devices(run, connection):
    run("reference.db")
    [key_hash] = {bytes.fromhex(row["public_key"]) for row in ROWS if row["user"] == "grace"}
    names = [
        device.installation_id
        for device in registrations.devices(connection, [key_hash], IDENTITY_OF.at_rest)[key_hash]
    ]
    assert len(names) == 3
    assert {name.lower() for name in names if "-" in name} == {"5a6baa5b-87a5-6d24-7b15-18303ea8c3d9"}


def test_the_conversation_goes_on(run, open_server):
    """Devices are found and pushed to; what the reference handled is not pushed again; a repeat is told its version."""
    run("reference.db")
    server = open_server(identity_key=KEY.secret.hex())
    server.derive()
    [alice] = {row["client_private_key"] for row in ROWS if row["user"] == "alice"}
    alice = PrivateKey.from_hex(alice)
    asker = PrivateKey.generate()
    server.handle(QUERY, messages.query(asker, alice.public_key.key_hash))
    [answer] = server.answers(asker)
    infos = PushNotificationQueryResponse.FromString(answer.inner).info
    assert sorted(info.version for info in infos) == [1, 3]
    # What the reference handled before.
    template = messages.request(asker, server.key, [])
    for handled in CONTENT["notifications"]:
        sealed = payload.seal_asymmetric(bytes.fromhex(handled["application_metadata_message"]), server.key, asker)
        server.handle(DISPATCH, replace(template, payload=sealed))
    assert server.observer.messages() == []
    assert server.pushes() == []
    # The same notification in a request of its own.
    [row] = [row for row in ROWS if row["user"] == "alice" and row["version"] == "1"]
    content = PushNotificationRegistration.FromString(bytes.fromhex(row["registration"]))
    again = messages.request(asker, server.key, [messages.notification(alice.public_key.key_hash, content)])
    server.handle(DISPATCH, again)
    assert server.outcomes(asker) == [["success"]]
    [push] = server.pushes()
    assert push.notification["tokens"] == [content.device_token]
    # A registration that is repeated, and the next one.
    server.handle(REGISTRATION, messages.register(alice, server.key, content))
    assert server.outcomes(alice) == ["VERSION_MISMATCH"]
    content.version = 2
    server.handle(REGISTRATION, messages.register(alice, server.key, content))
    assert server.outcomes(alice) == ["success"]
    # The request of before, sent again by somebody who recorded it.
    server.handle(DISPATCH, rewrapped(again, server))
    assert server.pushes() == []


def test_again_nothing_changes_and_what_is_newer_stays(run, connection, folder):
    run("reference.db")
    before = contents(connection, IDENTITY_OF), state(connection)
    _, totals = objects(run("reference.db", "--json"))
    assert (totals["taken"], totals["stored_already"], totals["requests_taken"]) == (0, 16, 0)
    assert (contents(connection, IDENTITY_OF), state(connection)) == before
    place, _ = expected_of(ROWS[0])
    connection.execute(
        "UPDATE registrations SET version = version + 100 WHERE key_hash = %s AND installation_hash = %s",
        [place.key_hash, place.installation_hash],
    )
    _, totals = objects(run("reference.db", "--json"))
    assert (totals["taken"], totals["stored_already"]) == (0, 16)
    # The reference goes on, and a second run brings it.
    with closing(sqlite3.connect(folder / "reference.db")) as reference:
        row = ROWS[1]
        content = PushNotificationRegistration.FromString(bytes.fromhex(row["registration"]))
        content.version += 5
        reference.execute(
            "INSERT INTO push_notification_server_registrations VALUES (?, ?, ?, ?)",
            [bytes.fromhex(row["public_key"]), row["installation_id"], content.version, content.SerializeToString()],
        )
        reference.commit()
    _, totals = objects(run("reference.db", "--json"))
    assert (totals["taken"], totals["stored_already"]) == (1, 15)


def test_a_run_that_was_ended_goes_on(run, connection, monkeypatch):
    monkeypatch.setattr(source, "_ROWS", source._ROWS.replace(f"LIMIT {source.BATCH}", "LIMIT 5"))
    load, calls = loading.load, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return load(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loading, "load", failing)
        run("reference.db", expect=130)
    assert 0 < state(connection)["registrations"] < 16
    _, totals = objects(run("reference.db", "--json"))
    assert totals["taken"] + totals["stored_already"] == 16
    assert totals["taken"] > 0
    assert state(connection)["registrations"] == 16


def test_ingest_watches_the_query_topics_of_all(run, connection, redis_server):
    with Redis.from_url(redis_server.url) as redis:
        redis.flushall()
        run("reference.db")
        with connection.transaction():
            topics = [topic for page in query_topics.every_topic(connection) for topic in page]
        assert len(topics) >= 18
        assert watched.among(redis, topics) == set(topics)


def test_without_redis_it_says_what_to_do(run, connection, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", "redis://127.0.0.1:1")
    result = run("reference.db")
    assert "Redis does not answer" in result.stderr
    assert state(connection)["registrations"] == 16


def test_a_dry_run_writes_nothing(run, connection, tmp_path):
    key = tmp_path / "written.key"
    told, totals = objects(run("reference.db", "--dry-run", "--json", "--identity-out", str(key)))
    assert (totals["taken"], totals["refused"], totals["requests_taken"]) == (16, 1, 6)
    assert {each["reason"] for each in told} == {"token_type_unsupported", "apn_topic_invalid", "unknown_fields"}
    assert state(connection) == NOTHING
    assert not key.exists()
    text = run("reference.db", "--dry-run").stdout
    assert "token_type_unsupported: user b6a1492781d6f241…, installation 3ddd5c1d-1292-09fd-52a2-4d1545e5345c" in text
    assert "reasons apn topic invalid" in text


def listing(folder):
    return {
        path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".db-shm"
    }


@pytest.mark.parametrize("words", FIXTURES.values(), ids=FIXTURES)
def test_what_is_read_stays_as_it_is(run, folder, words):
    before = listing(folder)
    run(*words)
    assert listing(folder) == before


def test_beside_a_server_that_writes(run, folder, connection):
    """What is committed is read, in the WAL or not; what is not yet is not."""
    with closing(sqlite3.connect(folder / "reference.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("DELETE FROM push_notification_server_notifications")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM push_notification_server_registrations")
        run("reference.db")
        writer.execute("ROLLBACK")
    assert state(connection) == {"registrations": 16, "query_topics": 20, "admitted_requests": 0}


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

    def test_without_one_in_the_settings_it_is_that_of_the_database(self, run, connection, monkeypatch, tmp_path):
        monkeypatch.delenv("WAKUPUSH_IDENTITY_KEY_FILE")
        run("reference.db", "--identity-out", str(tmp_path / "new"))
        assert len(contents(connection, IDENTITY_OF)) == 16


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
        refuse("not one row. statusd leaves rows in the -wal", "live/reference.db")
        (folder / "live/reference.db-shm").unlink()
        refuse("not one row", "live/reference.db")

    def test_a_daemons_file_without_its_wal_is_warned_of(self, run, folder):
        (folder / f"{DAEMON}-wal").unlink()
        result = run(DAEMON, "--config", "statusd/statusd.json")
        assert "its last changes are missing" in result.stderr

    def test_an_encrypted_file_without_its_wal_is_warned_of(self, run, folder):
        words = ("reference-sqlcipher.db", "--password-file", "password")
        assert "its last changes are missing" in run(*words).stderr
        (folder / "reference-sqlcipher.db-wal").touch()
        assert "its last changes" not in run(*words).stderr

    def test_the_wal_belongs_to_what_a_link_leads_to(self, run, folder, connection):
        (folder / "link.db").symlink_to("live/reference.db")
        result = run("link.db")
        assert "its last changes" not in result.stderr
        assert state(connection)["registrations"] == 16

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
        with closing(database.module_for(made.PASSWORD).connect(path)) as writer:
            database._unlock(writer, made.PASSWORD, database.KDF_ITERATIONS)
            writer.execute("PRAGMA journal_mode = wal")
            writer.execute(f"DELETE FROM {REQUESTS}")
            writer.commit()
            shutil.copy(path, folder / "cut.db")
            shutil.copy(f"{path}-wal", folder / "cut.db-wal")
        os.truncate(folder / "cut.db-wal", (folder / "cut.db-wal").stat().st_size - 1)
        refuse("-wal is truncated", "cut.db", "--password-file", "password")

    def test_how_often_a_password_is_hashed(self, run, refuse, folder, connection):
        with closing(database.create(folder / "often.db", made.PASSWORD, 4001)) as writer:
            made.fill(writer, [], [b"x" * 32])
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
        refuse("cannot be read", "live")
        refuse("is encrypted, or no database", "statusd/statusd.json")
        (folder / "short").write_bytes(b"SQLite")
        refuse("truncated", "short")

    def test_another_program(self, refuse, folder):
        with closing(sqlite3.connect(folder / "other.db")) as connection:
            connection.execute("CREATE TABLE places (id)")
        refuse("it is of another program", "other.db")

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


def test_strange_rows_end_no_others(run, connection, folder):
    client, identity = PrivateKey.generate(), KEY.public_key
    good = messages.registration(client, identity, version=2**63 - 1)
    named = [messages.registration(client, identity) for _ in range(8)]
    named[0].device_token = "x/../y"
    named[1].device_token = ""
    named[2].access_token = "none"
    named[3].grant = b"short"
    named[4].unregister = True
    named[5].muted_chat_list.append(b"x" * 200)
    key_hash = client.public_key.key_hash
    rows = [
        *(made.row(client, each) for each in named[:6]),
        (key_hash, named[6].installation_id, 7, named[6].SerializeToString()),
        (key_hash, "5a6baa5b-87a5-6d24-7b15-18303ea8c3d9", 1, named[7].SerializeToString()),
        (key_hash, b"\xff\xfe", 1, b""),
        (key_hash, "\x1b[31m", 1, None),
        (b"short", good.installation_id, 1, None),
        (key_hash.hex(), good.installation_id, 1, None),
        (key_hash, "00000000-0000-0000-0000-000000000001", 0, None),
        (key_hash, "00000000-0000-0000-0000-000000000002", -5, None),
        (key_hash, "00000000-0000-0000-0000-000000000003", 1.5, None),
        (key_hash, "00000000-0000-0000-0000-000000000004", "many", None),
        (key_hash, "00000000-0000-0000-0000-000000000005", 1, b"\xff"),
        (key_hash, "00000000-0000-0000-0000-000000000006", 1, "text"),
        made.row(client, good),
    ]
    made.make(folder / "strange.db", rows, requests=[b"x" * 32, b"short", "text", 5])
    told, totals = objects(run("strange.db", "--json"))
    assert (totals["taken"], totals["refused"]) == (1, len(rows) - 1)
    assert (totals["requests_taken"], totals["requests_refused"]) == (1, 3)
    assert [version for version, *_ in contents(connection, IDENTITY_OF).values()] == [2**63 - 1]
    assert {each["reason"] for each in told} == {
        *("device_token_invalid", "access_token_invalid", "grant_invalid", "contradiction", "registration_too_large"),
        *("installation_id_invalid", "strange_row", "version_zero", "registration_malformed"),
    }
    assert "\x1b" not in run("strange.db").output


def test_a_user_with_many_installations_keeps_them(run, connection, folder, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_LIMITS__INSTALLATIONS_PER_KEY", "3")
    client = PrivateKey.generate()
    made.make(folder / "many.db", [made.row(client, messages.registration(client, KEY.public_key)) for _ in range(5)])
    told, _ = objects(run("many.db", "--json"))
    assert [(each["reason"], each["taken"]) for each in told] == [("installation_limit", True)] * 2
    assert state(connection)["registrations"] == 5


def test_no_secret_is_told(run, folder, capfd, caplog):
    """Tokens, keys and the password stand in files and rows, and nowhere else."""
    client, secrets = PrivateKey.generate(), []
    contents_ = []
    for number, faults in enumerate(({}, {"token_type": 3}, {"apn_topic": ""}, {"grant": b"short"}, {"version": 0})):
        content = messages.registration(
            client, KEY.public_key, **({"device_token": f"planted{number}-{os.urandom(8).hex()}"} | faults)
        )
        secrets += [content.device_token, content.access_token, content.grant.hex(), repr(content.grant)[2:-1]]
        contents_.append(made.row(client, content))
    path = made.make(folder / "planted.db", contents_)
    said = run("planted.db").output + run("planted.db", "--json").output + run("planted.db", "--dry-run").output
    said += run("planted.db", "--compare", expect=1).output
    said += run("reference-sqlcipher.db", "--password-file", "password").output
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    said += run("planted.db", expect=2).output
    (folder / "password").write_text(made.PASSWORD + "!'")
    said += run("reference-sqlcipher.db", "--password-file", "password", expect=2).output
    said += "".join(capfd.readouterr()) + caplog.text
    secrets += [made.PASSWORD, KEY.secret.hex(), *(row["decoded"]["device_token"] for row in ROWS if row["decoded"])]
    assert len(secrets) > 20
    assert [secret for secret in secrets if secret in said] == []


class TestCompare:
    def test_what_was_imported_does_not_differ(self, run):
        run("reference.db")
        told, totals = objects(run("live/reference.db", "--compare", "--json", expect=1))
        assert totals == {"differences": {"refused": 1}}
        assert told[0]["installation_id"] == REFUSED[1]

    def test_nothing_differs(self, run, folder):
        client = PrivateKey.generate()
        made.make(folder / "one.db", [made.row(client, messages.registration(client, KEY.public_key))])
        run("one.db")
        assert "differences  0" in run("one.db", "--compare").stdout

    def test_each_kind(self, run, folder, connection):
        client = PrivateKey.generate()
        missing, changed, newer, older, gone, back, here = (
            messages.registration(client, KEY.public_key, version=5) for _ in range(7)
        )
        made.make(folder / "first.db", [made.row(client, each) for each in (changed, newer, older, gone, back, here)])
        run("first.db")
        changed.muted_chat_list.append(b"muted")
        changed.device_token = "another"
        changed.enabled = False
        newer.version, older.version = 6, 4
        rows = [made.row(client, each) for each in (missing, changed, newer, older, back)]
        rows.append((client.public_key.key_hash, gone.installation_id, 5, None))
        made.make(folder / "second.db", rows)
        before = contents(connection, IDENTITY_OF)
        told, totals = objects(run("second.db", "--compare", "--json", expect=1))
        assert {(each["kind"], each["installation_id"], tuple(each["details"])) for each in told} == {
            ("missing", missing.installation_id, ()),
            ("content", changed.installation_id, ("device_token", "enabled", "muted_chat_list")),
            ("newer there", newer.installation_id, ()),
            ("newer here", older.installation_id, ()),
            ("registered or not", gone.installation_id, ()),
            ("only here", here.installation_id, ()),
        }
        assert set(totals["differences"].values()) == {1}
        assert contents(connection, IDENTITY_OF) == before
        assert "another" not in run("second.db", "--compare", expect=1).stdout

    def test_requests_that_are_missing(self, run, folder, connection):
        made.make(folder / "requests.db", requests=[bytes([number]) * 32 for number in range(5)])
        run("requests.db")
        run("requests.db", "--compare")
        connection.execute("DELETE FROM admitted_requests WHERE message_id < %s", [bytes([2])])
        told, totals = objects(run("requests.db", "--compare", "--json", expect=1))
        assert (told, totals) == ([], {"differences": {"request missing": 2}})

    def test_unregistrations_of_an_export_of_ours(self, run, tmp_path, connection):
        run("reference.db")
        export = str(tmp_path / "export.db")
        run(export, command="export")
        run(export, "--compare")
        [gone, _] = connection.execute("DELETE FROM registrations WHERE NOT registered RETURNING key_hash").fetchall()
        told, totals = objects(run(export, "--compare", "--json", expect=1))
        assert totals == {"differences": {"missing": 2}}
        assert (gone[0].hex(), None) in {(each["key_hash"], each["installation_id"]) for each in told}
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
            done = []
            bars.append((what, total, done))
            yield done.append

        run("reference.db")
        run(str(tmp_path / "export.db"), command="export")
        monkeypatch.setattr(commands, "_bar", bar)
        run("reference.db", "--compare", expect=1)
        run(str(tmp_path / "export.db"), "--compare")
        assert [(what, total, sum(done)) for what, total, done in bars] == [("rows", 23, 23), ("rows", 22, 22)]

    def test_with_a_dry_run_it_makes_no_sense(self, run):
        run("reference.db", "--compare", "--dry-run", expect=2)


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
            if was.token_type == PushNotificationRegistration.FIREBASE_TOKEN:
                was.apn_topic = ""
            assert now == was

    def test_its_rows_are_brought_over_as_the_page_says(self, run, connection, tmp_path, folder):
        """Into the reference's old file: who unregistered since is not back, and ids stay whole. Twice is as once."""
        self.fill(run, connection)
        [gone] = [place for place, (_, device, _) in map(expected_of, ROWS) if device is not None][:1]
        change = Change(gone, b"", Unregistration(installation_id="", version=2**62))
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

    def test_versions_that_the_reference_cannot_store_are_left_out(self, run, connection, tmp_path):
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


def test_registration_is_what_a_row_gives():
    """`expected_of` above reads the fixtures by the server's own function; this holds it to their JSON."""
    for row in ROWS:
        if row["decoded"] is None:
            continue
        _, (version, registration, _) = expected_of(row)
        assert isinstance(registration, Registration)
        decoded = row["decoded"]
        assert version == int(decoded["version"])
        for name in ("installation_id", "device_token", "access_token", "enabled", "allow_from_contacts_only"):
            assert getattr(registration, name) == decoded[name]
        for name in ("allowed_key_list", "blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list"):
            assert [item.hex() for item in getattr(registration, name)] == decoded[name]
