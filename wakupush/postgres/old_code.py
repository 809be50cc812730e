"""Whether code may still run that reads secrets in the clear: until then they are written both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from psycopg import Connection

#: The migration that is applied when it is gone.
MIGRATION: Final = "0006_post_sealed_at_rest"


class OldCode:
    """What a process knows of it. Once gone, it does not come back."""

    def __init__(self) -> None:
        self.gone = False

    def may_run(self, connection: Connection) -> bool:
        """Say whether it may run, by the migrations that were applied."""
        if not self.gone:
            row = connection.execute("SELECT FROM schema_migrations WHERE name = %s", [MIGRATION]).fetchone()
            self.gone = row is not None
        return not self.gone
