"""Admitted push requests: what must not push again when it comes once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.state.named_sql import columns, load

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from psycopg import Connection

_SQL = load("requests")
#: How much of an application message id is kept.
ID_BYTES = 16


def admitted(connection: Connection, message_ids: Collection[bytes]) -> dict[bytes, list[bool]]:
    """Return, for each of these application message ids (32 bytes) that was admitted, which items succeeded."""
    ids = {message_id[:ID_BYTES]: message_id for message_id in message_ids}
    rows = connection.execute(_SQL["admitted"], {"ids": list(ids)})
    return {ids[short]: [flag == "1" for flag in flags] for short, flags in rows}


def admit(connection: Connection, succeeded: Mapping[bytes, Sequence[bool]]) -> None:
    """Remember admitted requests: for each application message id, which items were reported as taken on."""
    rows = [
        {"id": message_id[:ID_BYTES], "succeeded": "".join("01"[item] for item in items)}
        for message_id, items in succeeded.items()
    ]
    if rows:
        connection.execute(_SQL["admit"], columns(rows))
