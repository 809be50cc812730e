"""The transitions of deliveries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from psycopg import Connection
from psycopg.rows import dict_row

from wakupush.model.deliveries import NO_LEASE, Delivery, DeliveryState, Settlement
from wakupush.model.failures import BY_LABEL, Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Address, Installation, Receiver
from wakupush.postgres import registrations
from wakupush.postgres.named_sql import columns, load
from wakupush.protocol.at_rest import AtRest

_SQL = load("deliveries")


def take(
    connection: Connection, attempts_begun: Mapping[bytes, int], *, seconds: float, at_rest: AtRest
) -> list[tuple[Delivery, Receiver | None]]:
    """Begin the next attempt of deliveries; return those that are still as they were claimed and not under a lease.

    Each comes with its device and its present preferences; None if it is not registered, enabled and alive any more.

    Args:
        connection: to be committed before the attempt.
        attempts_begun: for each delivery key, how many attempts were begun when the delivery was claimed.
        seconds: how long the lease is.
        at_rest: opens what is sealed.
    """
    values = {
        "delivery_key": list(attempts_begun),
        "begun": list(attempts_begun.values()),
        "lease": uuid4(),
        "seconds": seconds,
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_SQL["take"], values).fetchall()
    deliveries = [_claimed_delivery(at_rest, row) for row in rows]
    return [
        (delivery, None if row["version"] is None else registrations.receiver(row, delivery.installation, at_rest))
        for delivery, row in zip(deliveries, rows, strict=True)
    ]


def lock(connection: Connection, deliveries: Collection[Delivery]) -> dict[bytes, Failure]:
    """Lock deliveries, always in the same order; return by key the failures that gorush's webhook reported."""
    rows = connection.execute(_SQL["lock"], {"delivery_key": [delivery.delivery_key for delivery in deliveries]})
    return {delivery_key: BY_LABEL[feedback] for delivery_key, feedback in rows if feedback in BY_LABEL}


def settle(connection: Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Store the outcomes of attempts; return those whose lease was still the caller's.

    A delivery that is done forgets its chat id and message; a dead letter keeps them for an operator to send again.

    Args:
        connection: in whose transaction the deliveries are locked.
        settlements: one for each delivery.
    """
    rows = [
        {
            "delivery_key": settlement.delivery.delivery_key,
            "lease": settlement.delivery.lease,
            "state": settlement.state,
            "failure": settlement.failure and settlement.failure.label,
            "version": settlement.version,
            "wait": settlement.wait,
            "counted": settlement.counted,
            "finished": settlement.state.is_final,
            "forget": settlement.state.is_final and not settlement.state.is_dead_letter,
        }
        for settlement in settlements
    ]
    if not rows:
        return []
    settled_keys = {delivery_key for (delivery_key,) in connection.execute(_SQL["settle"], columns(rows))}
    return [settlement for settlement in settlements if settlement.delivery.delivery_key in settled_keys]


def put_back(connection: Connection, deliveries: Sequence[Delivery]) -> None:
    """Give up the lease of deliveries without an attempt; a second later they are due again."""
    rows = [{"delivery_key": delivery.delivery_key, "lease": delivery.lease} for delivery in deliveries]
    if rows:
        lock(connection, deliveries)
        connection.execute(_SQL["put_back"], columns(rows) | {"lease_lost": Failure.LEASE_LOST.label})


def note_feedback(
    connection: Connection,
    delivery_key: bytes,
    attempt: int,
    lease: UUID | None,
    failure: Failure,
    *,
    apps: Sequence[str] | None = None,
) -> bool:
    """Keep a failure that gorush's webhook reports, of an attempt under way or stored as delivered.

    The worker that settles the delivery finds it, or else beat. In another state, or if another attempt was
    begun, the reported attempt has had its outcome: nothing is kept, and False is returned.

    Args:
        lease: of the attempt; None if code of the previous release posted it.
        apps: that may report it, besides one without a name, which the row has from before apps were told apart.
    """
    values = {
        "delivery_key": delivery_key,
        "attempt": attempt,
        "lease": lease,
        "failure": failure.label,
        "apps": None if apps is None else ["", *apps],
    }
    return connection.execute(_SQL["note_feedback"], values).rowcount > 0


def check_feedback(connection: Connection) -> None:
    """Check that the table takes feedback.

    Raises:
        Exception: one of `wakupush.server.errors.INFRASTRUCTURE`.
    """
    connection.execute(_SQL["takes_feedback"])


def exists(connection: Connection, delivery_key: bytes) -> bool:
    """Return whether there is such a delivery."""
    return connection.execute(_SQL["exists"], {"delivery_key": delivery_key}).fetchone() is not None


def apply_feedback(connection: Connection, delivery_keys: Collection[bytes]) -> list[Settlement]:
    """Make deliveries FAILED whose failure the webhook reported after they were stored as delivered; return them.

    Their chat ids and messages are forgotten, and no worker holds a lease. Their devices are locked first: a failure
    may be about a token, and who unregisters a device deletes its deliveries after.
    """
    connection.execute(_SQL["lock_devices"], {"delivery_keys": list(delivery_keys)})
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_SQL["apply_feedback"], {"delivery_keys": list(delivery_keys)}).fetchall()
    return [_ended(row, DeliveryState.FAILED) for row in rows]


def expire(connection: Connection, most: int) -> list[Settlement]:
    """End pending deliveries that are past their time to live, at most so many; return them.

    An operator can send them again. It skips rows that another transaction is changing.
    """
    values = {"most": most, "failure": Failure.DELIVERY_EXPIRED.label}
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_SQL["expire"], values).fetchall()
    return [_ended(row, DeliveryState.EXPIRED) for row in rows]


def _ended(row: dict[str, Any], state: DeliveryState) -> Settlement:
    """Return a delivery that no worker holds a lease of."""
    return Settlement(
        delivery=_delivery(row, chat_id=b"", message=b"", lease=NO_LEASE),
        state=state,
        failure=BY_LABEL.get(row["failure"], Failure.PLATFORM_UNCLEAR),
        version=None if row["version"] is None else int(row["version"]),
        proven=row["proven"],
    )


def _claimed_delivery(at_rest: AtRest, row: dict[str, Any]) -> Delivery:
    installation = Installation(row["key_hash"], row["installation_hash"])
    chat_id, message = at_rest.open_content(row["delivery_key"], installation, row["sealed_content"])
    address = None
    if row["chat_digest"] is not None:
        address = Address(installation, row["access_token_digest"] or b"", row["chat_digest"], row["author_digest"])
    return _delivery(
        row,
        chat_id=chat_id,
        message=message,
        lease=row["lease"],
        address=address,
        failure=BY_LABEL.get(row["failure"]),
        expired=row["expired"],
    )


def _delivery(row: dict[str, Any], **fields: Any) -> Delivery:
    """Return the delivery of a row, with these fields besides those that every statement returns."""
    return Delivery(
        delivery_key=row["delivery_key"],
        installation=Installation(row["key_hash"], row["installation_hash"]),
        app=row["app"],
        platform=Platform(row["platform"]),
        notification_type=NotificationType(row["notification_type"]),
        attempt=row["attempt"],
        task_id=row["task_id"],
        trace_id=row["trace_id"],
        seen=row["seen"],
        expires_at=row["expires_at"],
        **fields,
    )
