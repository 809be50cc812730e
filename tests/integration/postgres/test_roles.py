"""Each process has a role in Postgres that can do what its statements need, and nothing else."""

import os
import subprocess
import sys
from contextlib import closing, contextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.statements import SQL, statements
from wakupush.devnet.postgres import temporary_postgres
from wakupush.model.roles import COMMANDS, Role
from wakupush.postgres import events, maintenance, rebuilding, roles
from wakupush.postgres.migrations import runner

EVERY = "*"
#: Of each file in `wakupush/postgres/sql/`, the statements that a role's processes make.
POOL = {
    "ledger": {
        "add",
        "add_recent",
        "remove",
        "known",
        "attempts",
        "count_attempt",
        "touch_attempt",
        "refund_attempt",
        "forget_attempts",
        "quarantine",
    },
    "message_segments": {"lock", "try_lock", "stored", "parts", "forget", "keep", "trim"},
    "answers": {"add", "remove", "postpone"},
    "old_code": EVERY,
}
USES = {
    Role.REGISTRATION: {
        **POOL,
        "registrations": {
            "stored",
            "installations",
            "put",
            "unregister",
            "forget_deliveries",
            "forget_quarantine",
        },
        "query_topics": {"lock_shared", "add"},
    },
    Role.QUERY: {
        **POOL,
        "registrations": {"answer_bytes", "devices", "installations"},
        "query_topics": {"candidates"},
        "waiting_queries": {"add"},
    },
    Role.DISPATCH: {
        **POOL,
        "requests": EVERY,
        "answers": POOL["answers"] | {"withdraw"},
        "deliveries": {"take", "lock", "settle", "put_back", "lock_devices", "apply_feedback", "expire"},
        "registrations": {"lock", "token_died", "suspect", "prove", "installations"},
        "token_trials": EVERY,
    },
    Role.SCHEDULE: {
        "maintenance": EVERY,
        "due": EVERY,
        "answers": {"claim", "expire", "remove", "postpone"},
        "message_segments": {"expire", "trim_all"},
        "quarantine": {"trim"},
        "query_topics": {"lock", "all", "since", "unused", "remove_unused", "set_keys", "underived"},
        "waiting_queries": {"awaited", "wake", "take", "expire", "trim", "count"},
        "ledger": {"remove"},
        "token_trials": {"shares"},
        "dead_letters": {"counts"},
        "registrations": {"unregister_dead"},
        "old_code": EVERY,
    },
    Role.RECONCILE: {"reconciliation": {"missing", "watermark", "advance", "place"}, "old_code": EVERY},
    Role.EXPORTER: {"backlog": EVERY, "old_code": EVERY, "limits": {"connections", "use"}},
    Role.FEEDBACK: {"deliveries": {"note_feedback", "exists", "takes_feedback"}, "old_code": EVERY},
    Role.OPERATOR: {
        "apps": {"unfinished"},
        "registrations": {"server_keys"},
        "dead_letters": EVERY,
        "dead_tokens": EVERY,
        "token_trials": {"shares"},
        "backlog": {"waiting", "export"},
        "reconciliation": {"watermarks"},
        "history": EVERY,
        "quarantine": EVERY,
        "roles": EVERY,
        "limits": {"connections", "absent_timeouts"},
    },
    Role.PIPELINE: {"exporting": EVERY},
    Role.LAKE: {"exporting": {"lock", "note_run"}},
    Role.REBUILD: {
        "rebuilding": EVERY,
        "apps": EVERY,
        "takeover": EVERY,
        "requests": {"remember_over"},
        "registrations": {"stored"},
        "old_code": EVERY,
        "query_topics": {"lock_shared", "add", "count_without_key", "without_key", "set_keys", "all", "since"},
    },
}
_POOLS = (Role.REGISTRATION, Role.QUERY, Role.DISPATCH)
#: What the pools use together, of each file.
USES[Role.REST] = {
    file: EVERY if any(of == EVERY for of in uses) else set().union(*uses)
    for file in sorted({file for role in _POOLS for file in USES[role]})
    for uses in [[USES[role][file] for role in _POOLS if file in USES[role]]]
}
#: That stand elsewhere than in the files.
_EVENTS = {"events": events._COPY.as_string()}
OTHERS = {
    Role.REGISTRATION: _EVENTS,
    Role.QUERY: _EVENTS,
    Role.DISPATCH: _EVENTS,
    Role.REST: _EVENTS,
    Role.OPERATOR: {
        "pending": "SELECT name, checksum FROM schema_migrations",
    },
}


def declared_rights(role):
    return sorted(right for grant in roles.grants(role) for right in grant.rights)


def differing(connection):
    """What each role lacks and what it exceeds, in words, by its name."""
    return {login.role: (login.lacks, login.exceeds) for login in roles.logins(connection) if login.name == login.role}


def statements_of(role):
    """The statements of a role by name."""
    queries_by_file = USES[role]
    sql_by_name = {
        name: sql
        for name, sql in statements(SQL)
        for file, _, query in [name.partition(".")]
        if file in queries_by_file and (queries_by_file[file] == EVERY or query in queries_by_file[file])
    }
    return sql_by_name | OTHERS.get(role, {})


def refusal_text(connection, name, sql):
    """What Postgres says to a statement that the role at hand may not make; nothing if it may."""
    try:
        with connection.transaction(force_rollback=True):
            if sql.startswith("COPY"):
                with connection.cursor().copy(sql):
                    pass
            elif sql.startswith("CREATE TEMPORARY TABLE"):
                connection.execute(sql.replace("rebuilt", "another"))
            else:
                connection.execute(f"PREPARE it AS {sql}")
                count = connection.execute(
                    "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'it'"
                ).fetchone()[0]
                values = f"({', '.join(['NULL'] * count)})" if count else ""
                connection.execute(f"EXPLAIN EXECUTE it{values}")
    except psycopg.errors.InsufficientPrivilege as error:
        return f"{name}: {error.diag.message_primary}"
    finally:
        connection.execute("DEALLOCATE ALL")
    return None


@contextmanager
def acting(connection, role):
    connection.execute(f"SET ROLE {role}")
    try:
        yield
    finally:
        connection.execute("RESET ROLE")


def refusals(connection, role, first=""):
    """Yield what Postgres says to each statement that a role needs and may not make; those with `first` come first."""
    with acting(connection, role):
        for name, sql in sorted(statements_of(role).items(), key=lambda statement: first not in statement[1]):
            # What is to be copied into a table of the transaction is in the other's rights already.
            if name != "rebuilding.copy" and (refusal := refusal_text(connection, name, sql)):
                yield refusal


@pytest.fixture
def planning(connection):
    """A connection that plans without the values of parameters, so that nothing is left out for them."""
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute(rebuilding._SQL["stage"].replace("ON COMMIT DROP", ""))
    connection.execute("GRANT ALL ON rebuilt TO wakupush_rebuild")
    return connection


@pytest.mark.parametrize("role", Role)
def test_a_role_may_make_the_statements_of_its_process(planning, role):
    assert statements_of(role)
    assert list(refusals(planning, role)) == []


@pytest.mark.parametrize("role", Role)
def test_a_role_has_no_right_that_no_statement_needs(planning, role):
    needless = []
    # Iceberg's own statements use the lake's catalog.
    for right in (right for right in declared_rights(role) if "wakupush_lake" not in right.on):
        columns = f"({right.column})" if right.column else ""
        with planning.transaction(force_rollback=True):
            planning.execute(f"REVOKE {right.privilege} {columns} ON {right.on} FROM {role}")
            with closing(refusals(planning, role, first=right.on.split("(")[0].split()[-1])) as refused_now:
                needless += [] if next(refused_now, None) else [right]
    assert needless == []


def test_every_statement_is_of_a_role():
    of_roles = {name for role in Role for name in statements_of(role)}
    assert {name for name, _ in statements(SQL)} - of_roles == set()


def test_every_table_and_function_has_rights_declared(connection):
    named = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')"
    partitions = {f"{table}_default" for table in maintenance.DAYS_PER_PARTITION}
    tables = {
        name
        for (name,) in connection.execute(f"{named} AND (NOT relispartition OR relname = ANY (%s))", [[*partitions]])
    }
    functions = {
        f"FUNCTION {name}" for (name,) in connection.execute("SELECT proname FROM pg_proc WHERE prosecdef").fetchall()
    }
    lake = {"SCHEMA wakupush_lake", "wakupush_lake.iceberg_tables", "wakupush_lake.iceberg_namespace_properties"}
    of_roles = {right.on.split("(")[0] for role in Role for right in declared_rights(role)}
    lacking = (tables | functions) - of_roles
    assert lacking == set(), "say in wakupush/postgres/grants/ which process may do what with them"
    assert of_roles == tables | functions | lake


def test_rights_match_the_files(connection):
    assert differing(connection) == dict.fromkeys(Role, ((), ()))


@pytest.mark.parametrize(
    "statement",
    [
        "GRANT SELECT ON ledger TO wakupush_query",
        "GRANT SELECT ON ledger TO wakupush_lake WITH GRANT OPTION",
        "GRANT select ON ledger TO wakupush_lake",
        "GRANT SELECT(message_hash) ON ledger TO wakupush_lake",
        "REVOKE SELECT ON ledger FROM wakupush_lake",
        "GRANT SELECT ON ledger TO wakupush_lake GRANT SELECT ON answers TO wakupush_lake",
    ],
)
def test_ambiguous_grant_is_refused(statement):
    with pytest.raises(ValueError, match="another form"):
        list(roles._parse(statement, Role.LAKE))


@pytest.mark.parametrize("role", [Role.FEEDBACK, Role.EXPORTER, Role.RECONCILE, Role.PIPELINE, Role.LAKE])
def test_who_needs_no_registration_cannot_read_one(connection, role):
    columns = [column.name for column in connection.execute("SELECT * FROM registrations").description]
    with acting(connection, role):
        for column in columns:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f'SELECT "{column}" FROM registrations')


SECRETS = {
    "registrations": {
        *("sealed_device", "sealed_allowed_key_list", "access_token_digest", "blocked_chat_digests"),
    },
    "deliveries": {"sealed_content", "chat_digest", "author_digest"},
    "quarantine": {"payload"},
    "answers": {"payload"},
    "message_segments": {"payload"},
    "query_topics": {"symmetric_key"},
}


def test_only_who_acts_on_it_reads_what_is_private(connection):
    """Who has which private column: a table for people to look at, so that no right slips in."""
    readers = {
        f"{table}.{column}": {
            role
            for role in Role
            if connection.execute(
                "SELECT has_column_privilege(%s, %s, %s, 'SELECT')", [role, table, column]
            ).fetchone()[0]
        }
        for table, columns in SECRETS.items()
        for column in columns
    }
    writers = {Role.REGISTRATION, Role.REST, Role.REBUILD}
    assert readers == {
        "registrations.sealed_device": {Role.QUERY, Role.DISPATCH} | writers,
        "registrations.sealed_allowed_key_list": {Role.QUERY} | writers,
        "registrations.access_token_digest": {Role.DISPATCH} | writers,
        "registrations.blocked_chat_digests": {Role.DISPATCH} | writers,
        "deliveries.sealed_content": {Role.DISPATCH, Role.REST},
        "deliveries.chat_digest": {Role.DISPATCH, Role.REST},
        "deliveries.author_digest": {Role.DISPATCH, Role.REST},
        "quarantine.payload": {Role.OPERATOR, Role.SCHEDULE},
        "answers.payload": {Role.SCHEDULE},
        # Sealed; the schedule adds up how long they are.
        "message_segments.payload": {*_POOLS, Role.REST, Role.SCHEDULE},
        # No secret: it is made of what the topic is called.
        "query_topics.symmetric_key": {Role.QUERY, Role.REST, Role.SCHEDULE, Role.REBUILD},
    }


@pytest.mark.parametrize("role", Role)
def test_no_role_makes_or_owns_anything(connection, role):
    with acting(connection, role):
        for statement in (
            "CREATE TABLE mine (a int)",
            "DROP TABLE watermarks",
            "TRUNCATE ledger",
            "ALTER TABLE ledger ADD COLUMN a int",
            "INSERT INTO schema_migrations VALUES ('9999_pre_mine', '')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.SCHEDULE])
def test_only_the_schedule_makes_and_drops_partitions(connection, role):
    with acting(connection, role):
        for call in (
            "create_partition('ledger', '2020-01-01', 'attach if empty')",
            "drop_partition('ledger', '2020-01-01', 0)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT {call}")


def test_beat_may_create_and_drop_partitions(connection):
    with acting(connection, Role.SCHEDULE):
        connection.execute("SELECT create_partition('ledger', '2020-01-01', 'attach if empty')")
        for table in ("registrations", "ledger_20200101", "pg_class"):
            with pytest.raises(psycopg.errors.CaseNotFound):
                connection.execute("SELECT create_partition(%s, '2020-01-02', 'attach')", [table])
            with pytest.raises(psycopg.errors.CaseNotFound):
                connection.execute("SELECT drop_partition(%s, '2020-01-01', 0)", [table])
        dropped = "SELECT drop_partition('ledger', {}, -1e9)"
        for day in ("(now() AT TIME ZONE 'UTC')::date", "(now() AT TIME ZONE 'UTC')::date - 1"):
            assert connection.execute(dropped.format(day)).fetchone() == (False,)
        assert connection.execute(dropped.format("'2020-01-01'")).fetchone() == (True,)


def test_caller_cannot_shadow_an_owners_table(connection):
    """The functions run with the owner's rights: they look in the schema of the tables first."""
    with acting(connection, Role.SCHEDULE):
        connection.execute("CREATE TEMPORARY TABLE ledger (a int, message_timestamp bigint)")
        connection.execute("CREATE TEMPORARY TABLE ledger_default (a int, message_timestamp bigint)")
        connection.execute("SELECT create_partition('ledger', '2020-01-01', 'attach if empty')")
    cursor = connection.execute(
        "SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = 'ledger_20200101'::regclass"
    )
    assert cursor.fetchone() == ("public.ledger",)


def test_extra_grants_are_revoked_after_old_code_ends(connection):
    connection.execute("GRANT SELECT ON registrations TO wakupush_exporter")
    connection.execute("GRANT UPDATE (version) ON registrations TO wakupush_exporter")
    connection.execute("REVOKE SELECT (state) ON deliveries FROM wakupush_exporter")
    connection.execute("GRANT SELECT ON wakupush_lake.iceberg_tables TO wakupush_exporter")
    connection.execute("GRANT CREATE ON SCHEMA public TO wakupush_exporter")
    connection.execute("REVOKE SELECT (ctid) ON quarantine FROM wakupush_schedule")
    runner.migrate(connection, pre_only=True)
    assert differing(connection).pop(Role.SCHEDULE) == ((), ())
    lacks, exceeds = differing(connection).pop(Role.EXPORTER)
    assert lacks == ()
    assert [each.split(" (")[0] for each in exceeds] == [
        *("CREATE on SCHEMA public", "SELECT on registrations", "UPDATE on registrations"),
        "SELECT on wakupush_lake.iceberg_tables",
    ]
    runner.migrate(connection)
    assert differing(connection) == dict.fromkeys(Role, ((), ()))


def test_migrating_again_changes_no_grant(connection):
    state = """
        SELECT relname, relacl, pg_class.xmin, attname, attacl, pg_attribute.xmin
        FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
        WHERE relnamespace = 'public'::regnamespace ORDER BY 1, 4
    """
    before = connection.execute(state).fetchall()
    runner.migrate(connection)
    assert connection.execute(state).fetchall() == before


@pytest.fixture(scope="module")
def managed():
    """A cluster without our roles, and a database whose owner may make none, as providers have it."""
    with temporary_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("CREATE ROLE somebody LOGIN")
            admin.execute("CREATE DATABASE managed OWNER somebody")
        yield server, make_conninfo(server.dsn, user="somebody", dbname="managed")


def test_owner_without_create_role_lists_next_steps(managed, monkeypatch):
    server, dsn = managed
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", dsn)

    def migrate():
        # A process of its own: the command sets up logging for all.
        command = [sys.executable, "-m", "wakupush", "migrate"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return [line.strip() for line in result.stdout.splitlines()]

    create_lines = [line for line in migrate() if line.startswith("CREATE ROLE")]
    assert create_lines == [f"CREATE ROLE {role};" for role in Role]
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        for line in create_lines:
            admin.execute(line)
    assert migrate() == ["nothing to do"]
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        for role in Role:
            admin.execute(f"ALTER ROLE {role} LOGIN")
    with psycopg.connect(dsn, autocommit=True) as owner:
        assert differing(owner) == dict.fromkeys(Role, ((), ()))


@pytest.fixture(scope="module")
def creating():
    """A cluster whose owner may make roles and is no superuser, as other providers have it."""
    with temporary_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET log_statement = 'all'")
            admin.execute("SELECT pg_reload_conf()")
            admin.execute('CREATE ROLE "somebody@cloud" LOGIN CREATEROLE')
            admin.execute('CREATE DATABASE created OWNER "somebody@cloud"')
        yield server


def test_migration_lets_roles_log_in(creating):
    """From parts of a Secret, as in the chart: the owner's name and password may hold any character."""
    parts = {"PGHOST": "127.0.0.1", "PGUSER": "somebody@cloud", "PGPASSWORD": "p@ss/w:rd%"}
    passwords = {f"POSTGRES_{role.name}_PASSWORD": f"{role.name} ' %@/" for role in Role}
    command = [sys.executable, "-m", "wakupush", "migrate", "--pre", "--logins"]
    environment = os.environ | parts | {"WAKUPUSH_POSTGRES__DSN": f"postgresql://:{creating.port}/created"}
    for _ in range(2):
        result = subprocess.run(command, env=environment | passwords, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
    with psycopg.connect(creating.dsn, autocommit=True) as admin:
        password_rows = admin.execute(
            "SELECT rolname, rolpassword FROM pg_authid WHERE rolname LIKE 'wakupush%' AND rolcanlogin AND NOT rolsuper"
        ).fetchall()
    assert {name for name, _ in password_rows} == set(Role)
    assert all(digest.startswith("SCRAM-SHA-256$") for _, digest in password_rows)
    log = creating.log.read_text(errors="replace")
    assert "ALTER ROLE" in log
    assert not any(password in log for password in passwords.values())
    dsn = make_conninfo(creating.dsn, user=Role.FEEDBACK, dbname="created")
    with psycopg.connect(dsn) as feedback, pytest.raises(psycopg.errors.InsufficientPrivilege):
        feedback.execute("SELECT * FROM registrations")
    nothing = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert nothing.returncode == 2
    assert "POSTGRES_FEEDBACK_PASSWORD" in nothing.stderr


def test_member_of_a_role_has_its_rights(connection, dsn):
    connection.execute("CREATE ROLE pool_a LOGIN IN ROLE wakupush_exporter")
    try:
        with psycopg.connect(make_conninfo(dsn, user="pool_a"), autocommit=True) as process:
            process.execute("SELECT state FROM deliveries")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                process.execute("SELECT sealed_content FROM deliveries")
    finally:
        connection.execute("DROP ROLE pool_a")


def test_every_role_has_commands():
    assert COMMANDS.keys() == set(Role)
