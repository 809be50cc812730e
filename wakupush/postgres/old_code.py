"""Whether code may still run that reads secrets in the clear: until then they are written both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakupush.postgres.named_sql import load

if TYPE_CHECKING:
    from psycopg import Connection

_SQL = load("old_code")

#: The migration that is applied when it is gone.
MIGRATION: Final = "0006_post_sealed_at_rest"


def may_run(connection: Connection) -> bool:
    """Say whether it may run, by the migrations that were applied. Once gone, it does not come back."""
    return connection.execute(_SQL["gone"], {"migration": MIGRATION}).fetchone() is None
