"""Deliveries: the state machine, and its transitions in Postgres."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from wakupush.failures import BY_LABEL, Failure
from wakupush.protocol.registration import TokenType
from wakupush.protocol.request import NotificationType
from wakupush.state.queries import load
from wakupush.state.registrations import Installation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from psycopg import Connection

_SQL = load("deliveries")


class State(StrEnum):
    """Where a delivery stands."""

    #: To be attempted when its time has come.
    PENDING = "pending"
    #: A worker is posting it, under a lease.
    POSTING = "posting"
    #: gorush took it.
    DELIVERED = "delivered"
    #: It cannot be delivered; a new envelope may try again.
    FAILED = "failed"
    #: It was still undelivered at the end of its time to live.
    EXPIRED = "expired"
    #: No attempt is left; an operator can send it again.
    DEAD_LETTER = "dead_letter"

    @property
    def is_final(self) -> bool:
        """Whether the schedule does nothing more about it."""
        return self not in {State.PENDING, State.POSTING}


#: Every legal transition. POSTING to POSTING is a lease that ended; what failed is taken up again by a new envelope.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.PENDING: frozenset({State.POSTING}),
    State.POSTING: frozenset(State),
    State.DELIVERED: frozenset(),
    State.FAILED: frozenset({State.POSTING}),
    State.EXPIRED: frozenset({State.POSTING}),
    State.DEAD_LETTER: frozenset({State.POSTING}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notification on its way to a device."""

    #: See `wakupush.protocol.request.delivery_key`, 32 bytes.
    delivery_key: bytes
    installation: Installation
    platform: TokenType
    notification_type: NotificationType
    chat_id: bytes = field(repr=False)
    message: bytes = field(repr=False)
    #: From 1.
    attempt: int
    #: The Celery task whose states Flower shows for all attempts.
    task_id: str
    trace_id: str
    #: When ingest saw the request, in seconds since the epoch.
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A delivery that the schedule claimed for its next attempt."""

    delivery_key: bytes
    installation: Installation
    platform: TokenType
    #: The attempt that comes now.
    attempt: int
    #: Why the one before failed.
    failure: Failure | None
    expired: bool
    task_id: str
    trace_id: str
    seen: float
    #: Whether the one before ended without a word: its lease ran out.
    lease_lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What an attempt came to."""

    delivery: Delivery | Due
    state: State
    failure: Failure | None = None
    #: Seconds until the next attempt, for PENDING.
    wait: float | None = None
    #: Of the registration that was tried.
    version: int | None = None


def add(connection: Connection, deliveries: Sequence[Delivery], *, lease: float, time_to_live: float) -> set[bytes]:
    """Add deliveries in the state POSTING; return the keys of those that were new, or had failed before.

    Args:
        connection: in the transaction of the request.
        deliveries: for the caller to post once that is committed.
        lease: seconds for which the caller holds them.
        time_to_live: seconds after which they expire.
    """
    rows = [
        {
            "delivery_key": delivery.delivery_key,
            "key_hash": delivery.installation.key_hash,
            "installation_hash": delivery.installation.installation_hash,
            "platform": delivery.platform,
            "notification_type": delivery.notification_type,
            "chat_id": delivery.chat_id,
            "message": delivery.message,
            "attempt": delivery.attempt,
            "lease": lease,
            "seen": delivery.seen,
            "time_to_live": time_to_live,
            "task_id": delivery.task_id,
            "trace_id": delivery.trace_id,
        }
        for delivery in sorted(deliveries, key=lambda delivery: delivery.delivery_key)
    ]
    added: set[bytes] = set()
    with connection.cursor() as cursor:
        if rows:
            cursor.executemany(_SQL["add"], rows, returning=True)
            for result in cursor.results():
                added.update(row[0] for row in result.fetchall())
    return added


def claim(connection: Connection, *, limit: int, lease: float) -> list[Due]:
    """Claim deliveries whose time has come or whose lease has ended, and count the attempt that comes now."""
    rows = connection.execute(
        _SQL["claim"], {"limit": limit, "lease": lease, "lease_lost": Failure.LEASE_LOST.label}
    ).fetchall()
    return [
        Due(
            delivery_key=delivery_key,
            installation=Installation(key_hash, installation_hash),
            platform=TokenType(platform),
            attempt=attempt,
            failure=BY_LABEL.get(failure),
            expired=expired,
            task_id=task_id,
            trace_id=trace_id,
            seen=seen,
            lease_lost=lease_lost,
        )
        for (
            delivery_key, key_hash, installation_hash, platform, attempt, failure, expired, task_id, trace_id, seen,
            lease_lost,
        ) in rows
    ]  # fmt: skip


def take(connection: Connection, delivery_keys: Collection[bytes], *, attempt: int, lease: float) -> list[Delivery]:
    """Return those of the deliveries whose attempt is still this one, with a new lease."""
    rows = connection.execute(
        _SQL["take"], {"delivery_keys": list(delivery_keys), "attempt": attempt, "lease": lease}
    ).fetchall()
    return [
        Delivery(
            delivery_key=delivery_key,
            installation=Installation(key_hash, installation_hash),
            platform=TokenType(platform),
            notification_type=NotificationType(notification_type),
            chat_id=chat_id,
            message=message,
            attempt=number,
            task_id=task_id,
            trace_id=trace_id,
            seen=seen,
        )
        for (
            delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, number, task_id,
            trace_id, seen,
        ) in rows
    ]  # fmt: skip


def settle(connection: Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Store what attempts came to; return those whose lease was still the caller's.

    A delivery that is done forgets its chat id and message; a dead letter keeps them for an operator to send again.
    """
    ordered = sorted(settlements, key=lambda settlement: settlement.delivery.delivery_key)
    rows = [
        {
            "delivery_key": settlement.delivery.delivery_key,
            "attempt": settlement.delivery.attempt,
            "state": settlement.state,
            "failure": settlement.failure and settlement.failure.label,
            "version": settlement.version,
            "wait": settlement.wait,
            "finished": settlement.state.is_final,
            "forget": settlement.state.is_final and settlement.state is not State.DEAD_LETTER,
        }
        for settlement in ordered
    ]
    settled: set[bytes] = set()
    with connection.cursor() as cursor:
        if rows:
            cursor.executemany(_SQL["settle"], rows, returning=True)
            for result in cursor.results():
                settled.update(row[0] for row in result.fetchall())
    return [settlement for settlement in ordered if settlement.delivery.delivery_key in settled]


def put_back(connection: Connection, unattempted: Sequence[Delivery]) -> None:
    """Give up the lease of deliveries without an attempt; the schedule claims them again."""
    ordered = sorted(unattempted, key=lambda delivery: delivery.delivery_key)
    with connection.cursor() as cursor:
        cursor.executemany(
            _SQL["put_back"],
            [{"delivery_key": delivery.delivery_key, "attempt": delivery.attempt} for delivery in ordered],
        )
