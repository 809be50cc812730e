"""``wakupush import reference``: everything that the reference's databases hold, once, beside a server that writes."""

import os
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from redis import Redis

from support import reference_database
from support.imported import NOTHING, REFUSED, ROWS, expected_of, objects, state
from support.reference_database import CONTENT, DAEMON, IDENTITY_OF, KEY, PUSH_SERVER
from support.served import rewrapped
from support.stored import contents
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryInfo,
    PushNotificationQueryResponse,
    PushNotificationRegistration,
)
from wakupush.postgres import query_topics, registrations
from wakupush.protocol import payload
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.query import reveal
from wakupush.redis import watched
from wakupush.server.registration import loading
from wakupush.takeover import source

FIXTURES = {
    "plain": ("reference.db",),
    "in use": ("live/reference.db",),
    "of statusd": (DAEMON, "--config", "statusd/statusd.json"),
    "of push-notification-server": (PUSH_SERVER, "--identity-file", "push-notification-server/identity"),
    "encrypted": ("reference-sqlcipher.db", "--password-file", "password"),
}


@pytest.mark.parametrize("words", FIXTURES.values(), ids=FIXTURES)
def test_every_row_is_what_the_reference_has(run, connection, words):
    findings, totals = objects(run(*words, "--json"))
    assert (totals["taken"], totals["refused"], totals["requests_taken"]) == (16, 1, 6)
    devices = contents(connection, IDENTITY_OF)
    assert len(devices) == len(ROWS) == 16
    for row in ROWS:
        place, (version, registration, allowed) = expected_of(row)
        stored_version, device, stored_allowed, columns = devices[place]
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
    assert {(each["reason"], each["taken"]) for each in findings} == {
        ("token_type_unsupported", False),
        ("apn_topic_invalid", True),
        ("unknown_fields", True),
    }


@pytest.mark.parametrize("user", CONTENT["query_answers_of_the_reference"])
def test_query_learns_the_same_as_from_the_reference(run, connection, user):
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


def test_installation_ids_are_case_sensitive(run, connection):
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
    findings, totals = objects(run("reference.db", "--dry-run", "--json", "--identity-out", str(key)))
    assert (totals["taken"], totals["refused"], totals["requests_taken"]) == (16, 1, 6)
    assert {each["reason"] for each in findings} == {"token_type_unsupported", "apn_topic_invalid", "unknown_fields"}
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
        *(reference_database.row(client, each) for each in named[:6]),
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
        reference_database.row(client, good),
    ]
    reference_database.make(folder / "strange.db", rows, requests=[b"x" * 32, b"short", "text", 5])
    findings, totals = objects(run("strange.db", "--json"))
    assert (totals["taken"], totals["refused"]) == (1, len(rows) - 1)
    assert (totals["requests_taken"], totals["requests_refused"]) == (1, 3)
    assert [version for version, *_ in contents(connection, IDENTITY_OF).values()] == [2**63 - 1]
    assert {each["reason"] for each in findings} == {
        *("device_token_invalid", "access_token_invalid", "grant_invalid", "contradiction", "registration_too_large"),
        *("installation_id_invalid", "strange_row", "version_zero", "registration_malformed"),
    }
    assert "\x1b" not in run("strange.db").output


def test_a_user_with_many_installations_keeps_them(run, connection, folder, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_LIMITS__INSTALLATIONS_PER_KEY", "3")
    client = PrivateKey.generate()
    reference_database.make(
        folder / "many.db",
        [reference_database.row(client, messages.registration(client, KEY.public_key)) for _ in range(5)],
    )
    findings, _ = objects(run("many.db", "--json"))
    assert [(each["reason"], each["taken"]) for each in findings] == [("installation_limit", True)] * 2
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
        contents_.append(reference_database.row(client, content))
    path = reference_database.make(folder / "planted.db", contents_)
    output = run("planted.db").output + run("planted.db", "--json").output + run("planted.db", "--dry-run").output
    output += run("planted.db", "--compare", expect=1).output
    output += run("reference-sqlcipher.db", "--password-file", "password").output
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    output += run("planted.db", expect=2).output
    (folder / "password").write_text(reference_database.PASSWORD + "!'")
    output += run("reference-sqlcipher.db", "--password-file", "password", expect=2).output
    output += "".join(capfd.readouterr()) + caplog.text
    secrets += [
        reference_database.PASSWORD,
        KEY.secret.hex(),
        *(row["decoded"]["device_token"] for row in ROWS if row["decoded"]),
    ]
    assert len(secrets) > 20
    assert [secret for secret in secrets if secret in output] == []
