"""Push requests: the rows that decide about one, and the rows that it leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from wakupush.model.deliveries import Delivery, RememberedRequest
from wakupush.model.failures import BY_LABEL, Failure
from wakupush.model.registrations import Address, Receiver
from wakupush.postgres import registrations
from wakupush.postgres.named_sql import load
from wakupush.protocol.at_rest import REQUEST_ID_BYTES, AtRest

_SQL = load("requests")


def admitted(
    connection: Connection, message_ids: Collection[bytes]
) -> tuple[dict[bytes, RememberedRequest], set[bytes]]:
    """Return the remembered requests among these application message ids (32 bytes each).

    The second value holds the ids that are over. An id may have a row in each of two weeks, if it came twice when one
    ended: over wins, then the newest.
    """
    ids = {message_id[:REQUEST_ID_BYTES]: message_id for message_id in message_ids}
    rows = connection.execute(_SQL["admitted"], {"ids": list(ids)}).fetchall()
    over = {ids[short] for short, *_, is_over in rows if is_over}
    return {
        ids[short]: RememberedRequest([flag == "1" for flag in flags], week)
        for short, week, flags, _ in rows
        if ids[short] not in over
    }, over


def failed(connection: Connection, delivery_keys: Collection[bytes]) -> dict[bytes, Failure]:
    """Return why deliveries failed for good, expired or are dead letters, by key, as long as their rows exist."""
    return _failures(connection.execute(_SQL["failed"], {"delivery_keys": list(delivery_keys)}))


def failed_within(connection: Connection, seconds: float, delivery_keys: Collection[bytes]) -> dict[bytes, Failure]:
    """Return what `failed` does, in one round trip.

    Args:
        connection: in autocommit mode.
        seconds: that it may take.

    Raises:
        QueryCanceled: it took longer.
    """
    keys = ",".join(rf"\\x{delivery_key.hex()}" for delivery_key in delivery_keys)
    # Postgres takes two statements at once only without parameters.
    query = _SQL["failed"].replace("%(delivery_keys)b", f"'{{{keys}}}'::bytea[]")
    limit = f"SET LOCAL statement_timeout = {int(1000 * seconds)}"
    cursor = connection.execute(f"{limit}; {query}".encode(), prepare=False)
    cursor.nextset()
    return _failures(cursor)


def _failures(rows: Iterable[tuple[bytes, str]]) -> dict[bytes, Failure]:
    return {delivery_key: BY_LABEL.get(failure, Failure.PLATFORM_UNCLEAR) for delivery_key, failure in rows}


def receivers(connection: Connection, addresses: Collection[Address], at_rest: AtRest) -> dict[Address, Receiver]:
    """Return the registered devices that these addresses name."""
    names = list(addresses)
    values = {
        "key_hashes": [address.installation.key_hash for address in names],
        "installation_hashes": [address.installation.installation_hash for address in names],
        "access_tokens": [address.access_token for address in names],
        "chats": [address.chat for address in names],
        "authors": [address.author for address in names],
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_SQL["receivers"], values).fetchall()
    rows_of = {names[row["position"] - 1]: row for row in rows}
    return {address: registrations.receiver(row, address.installation, at_rest) for address, row in rows_of.items()}


def take_on(
    connection: Connection,
    deliveries: Sequence[Delivery],
    admissions: Mapping[bytes, RememberedRequest],
    *,
    lease: float,
    at_rest: AtRest,
) -> set[bytes]:
    """Add deliveries under a lease, and remember the requests they came with.

    Args:
        connection: in a transaction.
        deliveries: for the caller to post once that is committed.
        admissions: the requests to remember, by application message id (32 bytes).
        lease: seconds for which the deliveries are the caller's.
        at_rest: seals their contents.

    Returns:
        The keys of the deliveries that are new, or had failed before.
    """
    if not deliveries and not admissions:
        return set()
    addresses = [delivery.address for delivery in deliveries]
    rows = connection.execute(
        _SQL["take_on"],
        {
            **_item_columns(admissions),
            "weeks": [request.week for request in admissions.values()],
            "delivery_key": [delivery.delivery_key for delivery in deliveries],
            "key_hash": [delivery.installation.key_hash for delivery in deliveries],
            "installation_hash": [delivery.installation.installation_hash for delivery in deliveries],
            "app": [delivery.app for delivery in deliveries],
            "platform": [delivery.platform for delivery in deliveries],
            "notification_type": [delivery.notification_type for delivery in deliveries],
            "sealed_content": [
                at_rest.seal_content(
                    delivery.delivery_key, delivery.installation, delivery.chat_id, delivery.message, at=delivery.seen
                )
                for delivery in deliveries
            ],
            "chat_digest": [address and address.chat for address in addresses],
            "author_digest": [address and address.author for address in addresses],
            "access_token_digest": [(address and address.access_token) or None for address in addresses],
            "lease": [delivery.lease for delivery in deliveries],
            "seen": [delivery.seen for delivery in deliveries],
            "expires": [delivery.expires_at for delivery in deliveries],
            "task_id": [delivery.task_id for delivery in deliveries],
            "trace_id": [delivery.trace_id for delivery in deliveries],
            "seconds": lease,
        },
    ).fetchall()
    new_keys = {delivery_key for delivery_key, _ in rows}
    if any(old_code_may_run for _, old_code_may_run in rows):
        contents = {
            each.delivery_key: at_rest.seal_content_for_old_code(each.delivery_key, each.chat_id, each.message)
            for each in deliveries
            if each.delivery_key in new_keys
        }
        values = {"delivery_keys": list(contents), "contents": list(contents.values())}
        connection.execute(_SQL["seal_for_old_code"], values)
    return new_keys


def correct(connection: Connection, corrections: Mapping[bytes, RememberedRequest]) -> None:
    """Change which items of admitted requests succeeded, by application message id (32 bytes)."""
    if corrections:
        connection.execute(_SQL["correct"], _item_columns(corrections))


def remember_over(connection: Connection, message_ids: Collection[bytes]) -> int:
    """Remember requests that must not be pushed or answered any more; return how many had no row yet.

    They waited in our own queues until they were too old, or another server handled them.

    Args:
        connection: to the database.
        message_ids: of the applications, of which the first 16 bytes count.
    """
    ids = list({message_id[:REQUEST_ID_BYTES] for message_id in message_ids})
    return connection.execute(_SQL["remember_over"], {"message_ids": ids}).rowcount


def _item_columns(requests: Mapping[bytes, RememberedRequest]) -> dict[str, list[Any]]:
    return {
        "message_ids": [message_id[:REQUEST_ID_BYTES] for message_id in requests],
        "succeeded": ["".join("01"[item] for item in request.succeeded) for request in requests.values()],
    }
