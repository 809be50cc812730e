"""The roles of the processes: making them, granting what the files in ``grants/`` say, and comparing."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import NamedTuple

from psycopg import Connection, errors, sql

from wakupush.model.roles import STATEMENT_SECONDS, WITHOUT_TIMEOUTS, Role
from wakupush.postgres.maintenance import wait_shortly_for_locks
from wakupush.postgres.named_sql import load, value

_SQL = load("roles")
_PRIVILEGE = re.compile(r"([A-Z]+)(?: \(([\w, ]+)\))?")


class Right(NamedTuple):
    """A privilege of a role or a login on one object."""

    #: The object of GRANT … ON: a table, or the kind and the name of another object.
    on: str
    privilege: str
    #: Empty for the whole object.
    column: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A statement of a file."""

    sql: str
    rights: frozenset[Right]


@dataclass(frozen=True, slots=True)
class Login:
    """A login that has the rights of a role, and how its rights differ from those that the role should have."""

    name: str
    role: Role
    #: It is a superuser or owns the tables: no grant bounds it.
    is_unbounded: bool
    #: In words, each like ``SELECT on deliveries (state)``.
    lacks: tuple[str, ...]
    exceeds: tuple[str, ...]


def grants(role: Role) -> list[Grant]:
    """Return the statements of the file of a role.

    Raises:
        ValueError: one of them has another form than ``GRANT A, B (column, column) ON object TO role``.
    """
    text = (resources.files(__package__) / "grants" / f"{role}.sql").read_text()
    statements = (" ".join(statement.split()) for statement in re.sub("--.*", "", text).split(";"))
    return [Grant(statement, frozenset(_parse(statement, role))) for statement in statements if statement]


def find_missing(connection: Connection) -> list[Role]:
    """Return the roles that do not exist."""
    rows = connection.execute(_SQL["existing"], {"roles": list(Role)}).fetchall()
    return [role for role in Role if (role,) not in rows]


def apply(connection: Connection, *, exact: bool) -> None:
    """Make the roles that do not exist, if the connection may, and grant what is missing; a repeat does nothing.

    Roles belong to the whole cluster: if the connection may not make them, an administrator has to.

    Args:
        connection: of the owner of the tables, in autocommit mode.
        exact: whether to revoke what no file grants. False while old code may run, which needs its rights.
    """
    if value(connection, _SQL["may_create"]):
        for role in find_missing(connection):
            # The migration of another database of the cluster may have made it since.
            with suppress(errors.DuplicateObject, errors.UniqueViolation):
                connection.execute(f"CREATE ROLE {role} NOLOGIN")
    absent = find_missing(connection)
    with connection.transaction():
        wait_shortly_for_locks(connection)
        for role in Role:
            if role not in absent:
                _grant(connection, role, exact=exact)


def let_log_in(connection: Connection, passwords: Mapping[Role, str]) -> None:
    """Let roles log in with these passwords, of which Postgres gets only hashes; a repeat changes nothing for them.

    Args:
        connection: of whoever made the roles, or of another administrator.

    Raises:
        psycopg.Error: a role does not exist, or the connection may not change it.
    """
    for role, password in passwords.items():
        # Hashed here, so that no log of statements has the password.
        digest = connection.pgconn.encrypt_password(password.encode(), role.encode()).decode()
        statement = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
        connection.execute(statement.format(sql.Identifier(role), sql.Literal(digest)))


def set_timeouts(connection: Connection, seconds: float) -> list[str]:
    """Give the roles, and the logins that have their rights, time-outs in this database; a repeat does nothing.

    Behind a pooler no process can set them itself. A member does not inherit them from its role, so each login has its
    own. The owner and superusers stay as they are.

    Args:
        connection: in autocommit mode.
        seconds: that a statement may take, unless its role has another number; it waits for a lock for half of that.

    Returns:
        The statements that an administrator has to run, because this connection may not.
    """
    refused = []
    values = {"roles": [role for role in Role if role not in WITHOUT_TIMEOUTS]}
    for name, role, database, settings in connection.execute(_SQL["timeouts"], values).fetchall():
        milliseconds = 1000 * STATEMENT_SECONDS.get(Role(role), seconds)
        for parameter, limit in (("statement_timeout", milliseconds), ("lock_timeout", milliseconds / 2)):
            if f"{parameter}={limit:.0f}" in settings:
                continue
            statement = f"ALTER ROLE {name} IN DATABASE {database} SET {parameter} = {limit:.0f}"
            try:
                connection.execute(statement)
            except errors.InsufficientPrivilege:
                refused.append(statement)
    return refused


def logins(connection: Connection) -> list[Login]:
    """Return the logins that have the rights of a role; every login may ask."""
    result = []
    for name, of_role, is_unbounded in connection.execute(_SQL["logins"], {"roles": list(Role)}).fetchall():
        lacks, exceeds = _difference(connection, name, _grants(connection, Role(of_role)))
        result.append(Login(name, Role(of_role), is_unbounded, _words(lacks), _words(exceeds)))
    return result


def _parse(statement: str, role: Role) -> Iterator[Right]:
    parts = re.fullmatch(f"GRANT (.+) ON (.+) TO {role}", statement)
    for part in re.split(", (?=[A-Z])", parts[1]) if parts else [""]:
        privilege = _PRIVILEGE.fullmatch(part)
        if parts is None or privilege is None:
            raise ValueError(f"{role}.sql: this has another form than the other grants: {statement}")
        for column in (privilege[2] or "").split(", "):
            yield Right(parts[2], privilege[1], column)


def _grants(connection: Connection, role: Role) -> list[Grant]:
    """Return the statements of a role, with that on the schema, whose name the files do not know."""
    schema = value(connection, "SELECT format('SCHEMA %I', current_schema())")
    return [Grant(f"GRANT USAGE ON {schema} TO {role}", frozenset({Right(schema, "USAGE")})), *grants(role)]


def _grant(connection: Connection, role: Role, *, exact: bool) -> None:
    statements = _grants(connection, role)
    lacks, exceeds = _difference(connection, role, statements)
    objects = {right.on for right in (lacks | exceeds if exact else lacks)}
    for on in sorted(objects) if exact else ():
        connection.execute(f"REVOKE ALL ON {on} FROM {role}")
    for statement in statements:
        if any(right.on in objects for right in statement.rights):
            connection.execute(statement.sql)


def _difference(connection: Connection, login: str, statements: list[Grant]) -> tuple[set[Right], set[Right]]:
    """Return which of the rights of these statements a login lacks, and which others it has, all by columns."""
    file_rights = {right for statement in statements for right in statement.rights}
    rows = connection.execute(_SQL["rights"], {"login": login}).fetchall()
    possible = {Right(*of): is_held for *of, is_held in rows}
    needed_rights = {right for right in possible if not file_rights.isdisjoint({right, right._replace(column="")})}
    present = {right for right, is_held in possible.items() if is_held}
    return needed_rights - present, present - needed_rights


def _words(rights: Iterable[Right]) -> tuple[str, ...]:
    """Return rights for people, those on a table together."""
    words = []
    for (on, privilege), group in groupby(sorted(rights), key=lambda right: (right.on, right.privilege)):
        columns = ", ".join(right.column for right in group if right.column)
        words.append(f"{privilege} on {on} ({columns})" if columns else f"{privilege} on {on}")
    return tuple(words)
