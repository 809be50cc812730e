"""Whose fault a message is that takes too long: its own, or that of a Postgres in trouble. On a real Postgres."""

import signal
import time
from contextlib import contextmanager

import psycopg
import pytest
from celery.exceptions import SoftTimeLimitExceeded
from psycopg import errors

from support.served import work_off
from wakupush.devnet import messages
from wakupush.devnet.postgres import temporary_postgres
from wakupush.model.queues import REGISTRATION
from wakupush.postgres import ledger
from wakupush.postgres.migrations import runner
from wakupush.protocol.keys import PrivateKey
from wakupush.server.engine import isolation

ATTEMPTS = "SELECT attempts FROM message_attempts"
QUARANTINE = "SELECT reason, attempts FROM quarantine"


def execute(server, *statements):
    with server.context.pool.connection() as connection:
        for statement in statements:
            connection.execute(statement)


def costs(server, client, content, work):
    """Make storing the registration of a device cost whatever `work` (PL/pgSQL) does."""
    installation = server.context.identity.installation(client.public_key.key_hash, content.installation_id)
    execute(
        server,
        f"""CREATE FUNCTION cost() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.installation_hash = '\\x{installation.installation_hash.hex()}' THEN {work}; END IF; RETURN NEW;
        END $$""",
        "CREATE TRIGGER cost BEFORE INSERT ON registrations FOR EACH ROW EXECUTE FUNCTION cost()",
    )


def slow_disk(server):
    """Make every small write slow, and what is large too slow."""
    execute(
        server,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(TG_ARGV[0]::float8); RETURN NEW; END $$",
        "CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON message_attempts FOR EACH ROW EXECUTE FUNCTION slow('0.3')",
        "CREATE TRIGGER slow BEFORE INSERT ON registrations FOR EACH ROW EXECUTE FUNCTION slow('30')",
    )


@pytest.fixture
def impatient(open_server, dsn):
    """A server whose statements have little time."""
    return open_server(postgres={"dsn": dsn, "statement_timeout": 1.0})


@contextmanager
def soft_time_limit(seconds):
    """Interrupt what runs, as Celery does."""

    def interrupt(*_):
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        ("PERFORM pg_sleep(30)", "QueryCanceled"),
        ("RAISE 'too much' USING ERRCODE = 'out_of_memory'", "OutOfMemory"),
        ("RAISE 'too much' USING ERRCODE = 'configuration_limit_exceeded'", "ConfigurationLimitExceeded"),
    ],
)
def test_only_the_costly_message_ends_in_quarantine(impatient, work, reason):
    server, clients = impatient, [PrivateKey.generate() for _ in range(3)]
    contents = [messages.registration(client, server.key) for client in clients]
    costs(server, clients[1], contents[1], work)
    registrations = [
        messages.register(client, server.key, each) for client, each in zip(clients, contents, strict=True)
    ]
    server.handle(REGISTRATION, *registrations)
    work_off(server, REGISTRATION)
    assert server.outcomes(*clients) == ["success"] * 2
    assert server.rows(QUARANTINE) == [(reason, 3)]
    assert server.rows(ATTEMPTS) == []


def test_what_a_slow_disk_stops_is_not_counted(impatient, client):
    message = messages.register(client, impatient.key, messages.registration(client, impatient.key))
    slow_disk(impatient)
    for _ in range(4):
        with pytest.raises(errors.QueryCanceled):
            impatient.handle(REGISTRATION, message, alone=True)
        assert impatient.rows(ATTEMPTS) == [(0,)]
    execute(impatient, "DROP FUNCTION slow CASCADE")
    impatient.handle(REGISTRATION, message, alone=True)
    assert impatient.outcomes(client) == ["success"]
    assert impatient.rows(QUARANTINE) == []


def test_a_full_disk_counts_no_attempt(server, client):
    """The ledger cannot grow, while a row of `message_attempts` still finds room on its page."""
    message = messages.register(client, server.key, messages.registration(client, server.key))
    execute(
        server,
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER no_room BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION no_room()",
    )
    with pytest.raises(errors.DiskFull):
        server.handle(REGISTRATION, message)
    for _ in range(4):
        with pytest.raises(errors.DiskFull):
            server.handle(REGISTRATION, message, alone=True)
        assert server.rows(ATTEMPTS) == [(0,)]
    execute(server, "DROP FUNCTION no_room CASCADE")
    server.handle(REGISTRATION, message, alone=True)
    assert server.outcomes(client) == ["success"]
    assert server.rows(QUARANTINE) == []


@pytest.mark.parametrize("table", ["registrations", "ledger", "delivery_events"])
def test_what_waits_for_somebody_elses_lock_is_not_counted(impatient, client, dsn, table):
    message = messages.register(client, impatient.key, messages.registration(client, impatient.key))
    with psycopg.connect(dsn) as other:
        other.execute(f"LOCK TABLE {table}")
        with pytest.raises(errors.LockNotAvailable):
            impatient.handle(REGISTRATION, message)
        for _ in range(4):
            with pytest.raises(errors.LockNotAvailable):
                impatient.handle(REGISTRATION, message, alone=True)
            assert impatient.rows(f"{ATTEMPTS} WHERE attempts > 0") == []
    impatient.handle(REGISTRATION, message, alone=True)
    assert impatient.outcomes(client) == ["success"]


def test_the_soft_time_limit_takes_a_batch_apart(server, client, monkeypatch):
    registrations = [messages.register(client, server.key, messages.registration(client, server.key)) for _ in range(2)]
    with monkeypatch.context() as patch, soft_time_limit(0.2):
        patch.setattr(isolation, "run", lambda *_, **__: time.sleep(60))
        server.handle(REGISTRATION, *registrations)
    assert server.context.redis.llen(REGISTRATION.name) == 2
    assert work_off(server, REGISTRATION) == 0
    assert server.outcomes(client) == ["success"] * 2


def test_a_message_that_hangs_in_a_process_ends_in_quarantine(server, client, monkeypatch):
    message = messages.register(client, server.key, messages.registration(client, server.key))
    monkeypatch.setattr(isolation, "run", lambda *_, **__: time.sleep(60))
    for _ in range(3):
        with soft_time_limit(0.3):
            server.handle(REGISTRATION, message, alone=True)
    assert server.rows(QUARANTINE) == [("SoftTimeLimitExceeded", 3)]


def test_a_time_limit_due_to_a_slow_disk_counts_nothing(open_server, client, dsn):
    server = open_server(postgres={"dsn": dsn, "statement_timeout": 2.0})
    message = messages.register(client, server.key, messages.registration(client, server.key))
    slow_disk(server)
    for _ in range(4):
        with soft_time_limit(1.0), pytest.raises(SoftTimeLimitExceeded):
            server.handle(REGISTRATION, message, alone=True)
        assert server.rows(ATTEMPTS) == [(0,)]
    with psycopg.connect(dsn) as patient:
        patient.execute("DROP FUNCTION slow CASCADE")  # waits for the statements that go on in Postgres
    server.handle(REGISTRATION, message, alone=True)
    assert server.outcomes(client) == ["success"]


def test_the_reason_outlasts_an_outage(server, client, monkeypatch):
    """A message that took Postgres down is put aside when Postgres is back, with what is known of it."""
    quarantine, calls = ledger.quarantine, []

    def fail_once(*arguments, **facts):
        calls.append(facts)
        if len(calls) == 1:
            raise psycopg.OperationalError
        quarantine(*arguments, **facts)

    monkeypatch.setattr(ledger, "quarantine", fail_once)
    content = messages.registration(client, server.key)
    costs(server, client, content, "RAISE EXCEPTION 'poison'")
    server.handle(REGISTRATION, messages.register(client, server.key, content))
    work_off(server, REGISTRATION)
    assert server.rows(QUARANTINE) == [("RaiseException", 3)]
    assert len(calls) == 2


def test_a_message_that_takes_postgres_down_ends_in_quarantine(open_server, client):
    with temporary_postgres() as own, psycopg.connect(own.dsn, autocommit=True) as connection:
        runner.migrate(connection)
        server = open_server(postgres={"dsn": own.dsn})
        content = messages.registration(client, server.key)
        costs(server, client, content, "EXECUTE 'COPY (SELECT) TO PROGRAM ''kill -9 $PPID'''")
        server.handle(REGISTRATION, messages.register(client, server.key, content))
        work_off(server, REGISTRATION)
        [(reason, attempts)] = server.rows(QUARANTINE)
        assert (reason, attempts) == ("OperationalError", 3)
        server.context.pool.close()
