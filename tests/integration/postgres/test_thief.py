"""A stolen dump names nobody behind the pseudonyms of the events, once the day of a row is over."""

import subprocess
from hashlib import sha256

import pytest

from support import thief
from support.served import request
from wakupush.devnet import messages
from wakupush.model.events import period_of
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.server.beat.retention import prune

USERS = [PrivateKey(sha256(f"user {number}".encode()).digest()) for number in range(24)]
#: Of so many pairs in any order some are right by chance; more than these in one of 10,000 orders.
CHANCE = 6
#: The columns that have times.
TIMES = """
    SELECT table_name::text, column_name::text, data_type FROM information_schema.columns
    JOIN information_schema.tables USING (table_schema, table_name)
    WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
        AND (data_type IN ('timestamp with time zone', 'date') OR udt_name = '_timestamptz')
        AND table_name !~ '_(\\d{8}|default)$'
"""


@pytest.fixture
def server(open_server):
    key = sha256(b"server").hexdigest()
    return open_server(identity_key=key, delivery={"max_attempts": 1})


def live(server):
    """Users register, and each gets a push: most are delivered, some are dead letters, some tokens die or are bad."""
    tokens = dict.fromkeys((1, 3, 5, 7, 11, 15, 19, 21), "unavailable") | {9: "dead", 13: "bad", 17: "dead"}
    contents = []
    for number, client in enumerate(USERS):
        content = messages.registration(client, server.key, device_token=tokens.get(number, f"{number:064x}"))
        server.handle(REGISTRATION, messages.register(client, server.key, content))
        contents.append(content)
    for client, content in zip(USERS[5:] + USERS[:5], contents[5:] + contents[:5], strict=True):
        server.handle(DISPATCH, request(client, server, content))
    states = dict(server.rows("SELECT state, count(*) FROM deliveries GROUP BY state"))
    assert states == {"delivered": 13, "dead_letter": 8, "failed": 3}


def pass_days(connection, days):
    """Let all times of the database lie so much longer ago; the order of rows stays."""
    connection.execute("SET session_replication_role = replica")
    for table, column, kind in connection.execute(TIMES).fetchall():
        if kind == "ARRAY":
            new = f"ARRAY(SELECT at - interval '{days} days' FROM unnest({column}) AS at)"
            connection.execute(f"UPDATE {table} SET {column} = {new} WHERE {column} IS NOT NULL")
        elif table != "admitted_requests":
            new = f"{column} - {days}" if kind == "date" else f"{column} - interval '{days} days'"
            connection.execute(f"UPDATE {table} SET {column} = {new}")
    connection.execute("RESET session_replication_role")


def stolen_dump(postgres, dsn):
    program = postgres._programs / "pg_dump"
    result = subprocess.run([program, dsn], capture_output=True, text=True, check=True, env={"PGTZ": "UTC"})
    return thief.Dump(result.stdout)


def right(server, dump):
    """How many users each of the thief's ways finds."""
    identity, days = server.context.identity, server.context.settings.pipeline.pseudonym_days
    periods = {period_of(thief._seconds(event["time"]), days) for event in dump.events}
    truth = {
        (
            f"\\x{user.public_key.key_hash.hex()}",
            f"\\x{identity.user_pseudonym(user.public_key.key_hash, period).hex()}",
        )
        for user in USERS
        for period in periods
    }
    assert {event["key_pseudonym"] for event in dump.events} <= {pseudonym for _, pseudonym in truth}
    claims = {"value": thief.by_value(dump), "time": thief.by_time(dump), **thief.by_order(dump)}
    return {way: len({user for user, _ in claimed_pairs & truth}) for way, claimed_pairs in claims.items()}


def test_a_dump_names_nobody_of_past_days(server, postgres, dsn, connection):
    live(server)
    pass_days(connection, 2)
    prune(server.context)
    dump = stolen_dump(postgres, dsn)
    assert {len(dump.tables[name]) for name in ("registrations", "deliveries")} == {len(USERS), 8}
    hits = right(server, dump)
    assert (hits.pop("value"), hits.pop("time")) == (0, 0)
    assert max(hits.values()) < CHANCE


def test_the_thief_finds_users_of_today(server, postgres, dsn):
    """What he can do: the test above proves something only if this one passes."""
    live(server)
    hits = right(server, stolen_dump(postgres, dsn))
    assert hits["value"] == 0
    assert hits["time"] == len(USERS)
    assert hits["query_topics and registered"] == len(USERS)
    assert hits["deliveries and admitted"] == len(USERS)


def test_the_thief_finds_plain_trace_ids(server, postgres, dsn, monkeypatch):
    monkeypatch.setattr(Identity, "event_trace_id", lambda _, trace_id: trace_id)
    live(server)
    assert right(server, stolen_dump(postgres, dsn))["value"] >= 13
