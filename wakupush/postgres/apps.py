"""The apps of stored devices and deliveries."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from psycopg import Connection

from wakupush.model.registrations import Installation, Target
from wakupush.postgres.named_sql import columns, load, value
from wakupush.protocol.at_rest import AtRest

_SQL = load("apps")
#: Rows that are read, and changed, in one transaction.
CHUNK_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class StoredDevice:
    """A registered device, and the app that its row names."""

    installation: Installation
    target: Target
    app: str


def devices(connection: Connection, at_rest: AtRest) -> Iterator[list[StoredDevice]]:
    """Read all registered devices, in chunks with a statement each.

    Raises:
        UnsealableError: another server sealed a row.
    """
    last = Installation(b"", b"")
    while True:
        rows = connection.execute(_SQL["page"], asdict(last) | {"most": CHUNK_ROWS}).fetchall()
        if not rows:
            return
        page = [_device(at_rest, row) for row in rows]
        yield page
        last = page[-1].installation


def assign(connection: Connection, assignments: Iterable[tuple[StoredDevice, str]]) -> int:
    """Give devices their apps, unless they registered again; return how many rows changed.

    Args:
        connection: in a transaction that is committed soon.
    """
    rows = [
        {**asdict(device.installation), "version": device.target.version, "app": app} for device, app in assignments
    ]
    return connection.execute(_SQL["assign"], columns(rows)).rowcount if rows else 0


def estimate(connection: Connection) -> int:
    """Return about how many rows the registrations have, as Postgres counted them last."""
    return int(value(connection, _SQL["estimate"]))


def unfinished(connection: Connection) -> list[str]:
    """Return the names of the apps that have unfinished deliveries."""
    return [app for (app,) in connection.execute(_SQL["unfinished"])]


def unfinished_devices(connection: Connection, app: str, at_rest: AtRest, *, most: int) -> list[StoredDevice]:
    """Return some devices for which deliveries wait that name this app."""
    rows = connection.execute(_SQL["unfinished_devices"], {"app": app, "most": most}).fetchall()
    return [_device(at_rest, row) for row in rows]


def _device(at_rest: AtRest, row: tuple[Any, ...]) -> StoredDevice:
    key_hash, installation_hash, version, token_type, sealed_device, app = row
    installation = Installation(key_hash, installation_hash)
    target = at_rest.target(installation, int(version), sealed_device, token_type, suspected=False, proven=False)
    return StoredDevice(installation, target, app)
