"""What became of messages, for an operator: by user, and in sum."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from psycopg import Connection

from wakupush.postgres.named_sql import load

_SQL = load("history")
#: Messages of a user that are shown.
MOST_MESSAGES: Final = 50


def messages_of(
    connection: Connection, pseudonyms: Collection[bytes], since: datetime, until: datetime
) -> list[tuple[str, datetime]]:
    """Return the stored trace ids of messages about a user within a time, and when each began; the oldest first.

    It reads all events of that time, of all users.

    Args:
        pseudonyms: of the user, 16 bytes each, in the periods of that time.
    """
    values = {"pseudonyms": list(pseudonyms), "since": since, "until": until, "most": MOST_MESSAGES}
    return connection.execute(_SQL["of_user"], values).fetchall()


def losses(connection: Connection, since: datetime, until: datetime) -> list[tuple[str, str, int]]:
    """Return the kinds of outcomes within a time, with failure or reason, and their number.

    It reads all events of that time.
    """
    return connection.execute(_SQL["losses"], {"since": since, "until": until}).fetchall()
