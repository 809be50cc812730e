"""What a worker process knows of older code that runs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.postgres import old_code

if TYPE_CHECKING:
    from psycopg import Connection


class OldCode:
    """Whether older code may still run; ask until it is gone for good."""

    def __init__(self) -> None:
        self.gone = False

    def may_run(self, connection: Connection) -> bool:
        """Say whether older code may run: then secrets are written in the clear, too."""
        self.gone = not old_code.may_run(connection)
        return not self.gone
