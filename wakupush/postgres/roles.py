"""The roles of the processes: making them, granting what `wakupush.model.roles` says, and comparing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from typing import LiteralString

from psycopg import Connection, errors, sql

from wakupush.model.roles import OF_THE_CATALOG, Login, Right, Role, declared
from wakupush.postgres.named_sql import load

_SQL = load("roles")
#: A column that every table has, and that no list of columns names.
_CTID = "ctid"


def missing(connection: Connection) -> list[Role]:
    """Return the roles that do not exist."""
    rows = connection.execute(_SQL["existing"], {"roles": list(Role)}).fetchall()
    return [role for role in Role if (role,) not in rows]


def apply(connection: Connection, *, exact: bool) -> None:
    """Make the roles that do not exist, if the connection may, and grant what is missing; a repeat does nothing.

    Roles belong to the whole cluster: if the connection may not make them, an administrator has to.

    Args:
        connection: of the owner of the tables, in autocommit mode.
        exact: whether to revoke what is not declared. False while old code may run, which needs its rights.
    """
    row = connection.execute(_SQL["may_create"]).fetchone()
    if row is not None and row[0]:
        for role in missing(connection):
            _make(connection, role)
    absent = missing(connection)
    roles = [role for role in Role if role not in absent]
    with connection.transaction():
        for (role,) in connection.execute(_SQL["outside"], {"roles": roles}).fetchall():
            connection.execute(
                sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(_schema(connection), sql.Identifier(role))
            )
        of_the_catalog = [role for role in OF_THE_CATALOG if role in roles]
        for (role,) in connection.execute(_SQL["outside_the_catalog"], {"roles": of_the_catalog}).fetchall():
            connection.execute(sql.SQL("GRANT USAGE ON SCHEMA wakupush_lake TO {}").format(sql.Identifier(role)))
            connection.execute(
                sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA wakupush_lake TO {}").format(
                    sql.Identifier(role)
                )
            )
        wanted = {right for right in declared() if right.role in roles}
        granted = _granted(connection, roles)
        for right in sorted(wanted - granted):
            connection.execute(_change("GRANT {} ON {} {} TO {}", right))
        for right in sorted(granted - wanted) if exact else ():
            connection.execute(_change("REVOKE {} ON {} {} FROM {}", right))


def logins(connection: Connection) -> list[Login]:
    """Return the logins that have the rights of a role; every login may ask."""
    columns: dict[str, list[str]] = dict(connection.execute(_SQL["columns"]).fetchall())
    found = []
    for name, of_role, is_unbounded in connection.execute(_SQL["logins"], {"roles": list(Role)}).fetchall():
        role = Role(of_role)
        wanted = {
            Right(role, right.on, right.privilege, column)
            for right in declared()
            if right.role is role and right.column != _CTID
            for column in _columns(right, columns)
        }
        held = {Right(role, *right) for right in connection.execute(_SQL["held"], {"login": name})}
        found.append(Login(name, role, is_unbounded, _words(wanted - held), _words(held - wanted)))
    return found


def _make(connection: Connection, role: Role) -> None:
    # The migration of another database of the cluster may have made it meanwhile.
    with suppress(errors.DuplicateObject, errors.UniqueViolation):
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(role)))


def _schema(connection: Connection) -> sql.Identifier:
    row = connection.execute("SELECT current_schema()").fetchone()
    return sql.Identifier(row[0] if row else "public")


def _granted(connection: Connection, roles: list[Role]) -> set[Right]:
    rows = connection.execute(_SQL["granted"], {"roles": roles})
    return {Right(Role(role), on, privilege, column) for role, on, privilege, column in rows}


def _change(statement: LiteralString, right: Right) -> sql.Composed:
    """Return a statement with the places of the privilege, the kind of object, the object and the role filled."""
    name, bracket, arguments = right.on.partition("(")
    column = sql.SQL(" ({})").format(sql.Identifier(right.column)) if right.column else sql.SQL("")
    return sql.SQL(statement).format(
        sql.SQL(right.privilege) + column,
        sql.SQL("FUNCTION" if bracket else "TABLE"),
        sql.Identifier(name) + sql.SQL(bracket + arguments),
        sql.Identifier(right.role),
    )


def _columns(right: Right, columns: dict[str, list[str]]) -> list[str]:
    """Return the columns of a right: one, all of its table, or an empty name for a right without columns."""
    of_columns = right.privilege in {"SELECT", "INSERT", "UPDATE"}
    return columns.get(right.on, []) if of_columns and not right.column else [right.column]


def _words(rights: Iterable[Right]) -> tuple[str, ...]:
    """Return rights for people, those on a table together."""
    words = []
    for (on, privilege), group in groupby(sorted(rights), key=lambda right: (right.on, right.privilege)):
        columns = ", ".join(right.column for right in group if right.column)
        words.append(f"{privilege} on {on} ({columns})" if columns else f"{privilege} on {on}")
    return tuple(words)
