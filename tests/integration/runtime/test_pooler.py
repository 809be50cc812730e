"""The server behind a PgBouncer that pools transactions: what belongs to a session does not get lost, or to others."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from support.pgbouncer import PROGRAM, PgBouncer
from support.served import request
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, QUERY
from wakupush.model.roles import Role
from wakupush.operate import doctor
from wakupush.operate.finding import Level
from wakupush.pb.push_notification_pb2 import PushNotificationQueryResponse
from wakupush.postgres import roles
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.connections.postgres import is_pooled, open_pool, refuse_pooler
from wakupush.runtime.settings import PostgresSettings, Settings, SettingsError
from wakupush.server.beat.answers import publish_overdue
from wakupush.server.beat.beat import open_beat
from wakupush.server.beat.deliveries import claim_due
from wakupush.server.beat.retention import prune

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no pgbouncer: `apt-get install pgbouncer`, as root on Debian")


@pytest.fixture(scope="module")
def pooler(postgres):
    with tempfile.TemporaryDirectory(prefix="wakupush-pgbouncer-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with PgBouncer(directory, postgres, ["postgres", *Role]) as pooler:
            yield pooler


@pytest.fixture
def database(dsn):
    return str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def behind(pooler, database):
    """Settings of a process behind the pooler."""

    def of(user="postgres", **settings):
        return PostgresSettings(dsn=SecretStr(pooler.dsn(database, user)), prepared_statements=False, **settings)

    return of


def test_server_works_behind_a_pooler(open_server, behind, client):
    server = open_server(postgres=behind().model_dump())
    registered = server.register(client)
    asker = PrivateKey.generate()
    for _ in range(10):  # more often than psycopg needs to prepare a statement
        server.handle(QUERY, messages.query(asker, client.public_key.key_hash))
        [reply] = server.answers(asker)
        [info] = PushNotificationQueryResponse.FromString(reply.inner).info
        assert info.access_token == registered.access_token
        server.handle(DISPATCH, request(client, server, registered))
        assert server.outcomes(client) == [["success"]]
        assert [push.outcome for push in server.pushes()] == ["delivered"]
    with closing(open_beat(server.context.settings)) as beat:
        publish_overdue(beat)
        claim_due(beat)
        prune(beat)
    assert server.rows("SELECT state, count(*) FROM deliveries GROUP BY state") == [("delivered", 10)]


def test_timeouts_come_from_the_role(behind, connection):
    assert roles.set_timeouts(connection, 20.0) == []
    expected = {Role.DISPATCH: ("20s", "10s"), Role.FEEDBACK: ("2s", "1s"), Role.PIPELINE: ("0", "0")}
    for role, timeouts in expected.items():
        with closing(open_pool(behind(role, statement_timeout=7))) as pool, pool.connection() as process:
            assert process.execute("SHOW statement_timeout").fetchone() == (timeouts[0],)
            assert process.execute("SHOW lock_timeout").fetchone() == (timeouts[1],)


def test_timeouts_of_a_session_reach_no_other(behind, dsn):
    direct = PostgresSettings(dsn=SecretStr(dsn), statement_timeout=7)
    for settings, expected in ((direct, "7s"), (behind(statement_timeout=7), "0")):
        with closing(open_pool(settings)) as pool, pool.connection() as process:
            assert process.execute("SHOW statement_timeout").fetchone() == (expected,)
            assert is_pooled(process) == (expected == "0")


def use(pool):
    for number in range(50):
        with pool.connection() as process:
            process.execute("SELECT pg_sleep(0.001), %s::integer", [number])


@pytest.mark.parametrize("prepared", [True, False])
def test_prepared_statements_can_be_switched_off(behind, prepared):
    """An older PgBouncer loses them; should it know them one day, the setting is only for older ones."""
    settings = behind().model_copy(update={"prepared_statements": prepared})
    with (
        closing(open_pool(settings)) as first,
        closing(open_pool(settings)) as second,
        ThreadPoolExecutor(4) as threads,
    ):
        running = [threads.submit(use, pool) for pool in (first, second, first, second)]
        errors = [error for one in running if (error := one.exception(60))]
    if prepared:
        assert errors
        assert all(isinstance(error, psycopg.errors.ProgrammingError | psycopg.OperationalError) for error in errors)
    else:
        assert errors == []


def test_session_work_refuses_a_pooler(behind, connection):
    refuse_pooler(connection)
    with (
        psycopg.connect(behind().dsn.get_secret_value(), autocommit=True) as pooled,
        pytest.raises(SettingsError, match="WAKUPUSH_POSTGRES__DIRECT_DSN"),
    ):
        refuse_pooler(pooled)


def findings(postgres):
    return list(doctor._postgres(Settings(postgres=postgres), connections=50))


def test_doctor_names_what_a_pooler_breaks(behind, connection, dsn):
    bad = behind().model_copy(update={"prepared_statements": True})
    faults = [finding.text for finding in findings(bad) if finding.level is not Level.OK and finding.part == "pooler"]
    assert len(faults) == 4
    for text, name in zip(
        faults, ("PREPARED_STATEMENTS", "statement_timeout", "lock_timeout", "DIRECT_DSN"), strict=True
    ):
        assert name in text

    roles.set_timeouts(connection, 20.0)
    good = behind(Role.OPERATOR, direct_dsn=SecretStr(dsn))
    [finding] = [finding for finding in findings(good) if finding.part == "pooler"]
    assert (finding.level, "each transaction" in finding.text) == (Level.OK, True)


def test_doctor_compares_connections_with_the_limit(dsn):
    [enough] = [finding for finding in findings(PostgresSettings(dsn=SecretStr(dsn))) if "connections" in finding.text]
    assert enough.level is Level.OK
    settings = Settings(postgres=PostgresSettings(dsn=SecretStr(dsn)))
    [few] = [one for one in doctor._postgres(settings, connections=98) if "connections" in one.text]
    assert few.level is Level.WARNING
    assert "it allows 97 connections, and 98 may be opened" in few.text
