"""Deliveries: the state machine, and its transitions in Postgres."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from wakupush.failures import BY_LABEL, Failure
from wakupush.protocol.registration import TokenType
from wakupush.protocol.request import NotificationType
from wakupush.state.named_sql import columns, load
from wakupush.state.registrations import Installation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from psycopg import Connection

_SQL = load("deliveries")
#: Of a delivery that nobody posts.
NO_LEASE: Final = UUID(int=0)


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
    #: It was still undelivered at the end of its time to live; an operator can send it again.
    EXPIRED = "expired"
    #: No attempt is left; an operator can send it again.
    DEAD_LETTER = "dead_letter"

    @property
    def is_final(self) -> bool:
        """Whether the schedule does nothing more about it."""
        return self not in {State.PENDING, State.POSTING}

    @property
    def is_dead_letter(self) -> bool:
        """Whether its content is kept for an operator to send it again."""
        return self in {State.EXPIRED, State.DEAD_LETTER}


#: The state in which deliveries are added, under a lease.
INITIAL = State.POSTING
#: Every legal transition. What failed, expired or ran out of attempts is taken up again by a new envelope; an operator
#: sends dead letters again; gorush's webhook may tell that what read as delivered was not.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.PENDING: frozenset({State.POSTING}),
    State.POSTING: frozenset({State.PENDING, State.DELIVERED, State.FAILED, State.EXPIRED, State.DEAD_LETTER}),
    State.DELIVERED: frozenset({State.FAILED}),
    State.FAILED: frozenset({State.POSTING}),
    State.EXPIRED: frozenset({State.POSTING, State.PENDING}),
    State.DEAD_LETTER: frozenset({State.POSTING, State.PENDING}),
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
    #: Which attempt this is, from 1.
    attempt: int
    #: Whoever posts it has this lease.
    lease: UUID
    #: The Celery task whose states Flower shows for all attempts.
    task_id: str
    trace_id: str
    #: When ingest saw the request, in seconds since the epoch.
    seen: float
    #: Why the attempt before failed, None for the first.
    failure: Failure | None = None
    #: Whether its time to live is over.
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A delivery whose next attempt is to be enqueued."""

    delivery_key: bytes
    platform: TokenType
    #: Attempts that were begun so far.
    begun: int
    #: Why the last one failed.
    failure: Failure | None
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What an attempt came to."""

    delivery: Delivery
    state: State
    failure: Failure | None = None
    #: Seconds until the next attempt, for PENDING.
    wait: float | None = None
    #: False where the attempt does not count, because it was known to have little chance.
    counted: bool = True
    #: Of the registration that was tried.
    version: int | None = None
    #: Whether its device token was doubted lately.
    suspected: bool = False


def add(
    connection: Connection,
    deliveries: Sequence[Delivery],
    *,
    seconds: float,
    time_to_live: Mapping[NotificationType, float],
) -> set[bytes]:
    """Add deliveries in the state POSTING; return the keys of those that were new, or had failed before.

    Args:
        connection: in the transaction of the request.
        deliveries: for the caller to post once that is committed, under the leases that they carry.
        seconds: how long these leases are.
        time_to_live: seconds after which deliveries expire, by the type of notification.
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
            "lease": delivery.lease,
            "seen": delivery.seen,
            "time_to_live": time_to_live[delivery.notification_type],
            "task_id": delivery.task_id,
            "trace_id": delivery.trace_id,
        }
        for delivery in deliveries
    ]
    if not rows:
        return set()
    added = connection.execute(_SQL["add"], columns(rows) | {"seconds": seconds})
    return {delivery_key for (delivery_key,) in added}


def claim(connection: Connection, platform: TokenType, *, limit: int, seconds: float) -> list[Due]:
    """Return deliveries of a platform that are to be attempted, at most `limit`.

    First come those whose lease has ended, then those whose time has come: what was put back before its first attempt,
    the newest first, then the others, the oldest first.

    For `seconds` nobody else gets them, and whoever takes them by then counts the attempt; if nobody does, because the
    task was lost or waits in its queue, they come again.
    """
    rows = connection.execute(
        _SQL["claim"],
        {"platform": platform, "limit": limit, "seconds": seconds, "lease_lost": Failure.LEASE_LOST.label},
    ).fetchall()
    return [
        Due(
            delivery_key=delivery_key,
            platform=TokenType(platform),
            begun=attempt,
            failure=BY_LABEL.get(failure),
            task_id=task_id,
        )
        for delivery_key, platform, attempt, failure, task_id in rows
    ]


def take(connection: Connection, claimed: Mapping[bytes, int], *, seconds: float) -> list[Delivery]:
    """Begin the next attempt of deliveries; return those of which as many were begun as expected, and nobody has.

    Args:
        connection: to be committed before the attempt.
        claimed: their keys, and how many attempts were begun when they were claimed.
        seconds: how long the lease is.
    """
    rows = connection.execute(
        _SQL["take"],
        {"delivery_key": list(claimed), "begun": list(claimed.values()), "lease": uuid4(), "seconds": seconds},
    ).fetchall()
    return [
        Delivery(
            delivery_key=delivery_key,
            installation=Installation(key_hash, installation_hash),
            platform=TokenType(platform),
            notification_type=NotificationType(notification_type),
            chat_id=chat_id,
            message=message,
            attempt=attempt,
            lease=lease,
            task_id=task_id,
            trace_id=trace_id,
            seen=seen,
            failure=BY_LABEL.get(failure),
            expired=expired,
        )
        for (
            delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, attempt, lease,
            task_id, trace_id, seen, failure, expired,
        ) in rows
    ]  # fmt: skip


def lock(connection: Connection, attempted: Collection[Delivery]) -> dict[bytes, Failure]:
    """Lock deliveries in the order in which everybody does; return by key what gorush's webhook told of them."""
    rows = connection.execute(_SQL["lock"], {"delivery_key": [delivery.delivery_key for delivery in attempted]})
    return {delivery_key: BY_LABEL[feedback] for delivery_key, feedback in rows if feedback in BY_LABEL}


def settle(connection: Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Store what attempts came to; return those whose lease was still the caller's.

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
    settled = {delivery_key for (delivery_key,) in connection.execute(_SQL["settle"], columns(rows))}
    return [settlement for settlement in settlements if settlement.delivery.delivery_key in settled]


def put_back(connection: Connection, unattempted: Sequence[Delivery]) -> None:
    """Give up the lease of deliveries without an attempt; a second later they are due again."""
    rows = [{"delivery_key": delivery.delivery_key, "lease": delivery.lease} for delivery in unattempted]
    if rows:
        lock(connection, unattempted)
        connection.execute(_SQL["put_back"], columns(rows) | {"lease_lost": Failure.LEASE_LOST.label})


def note_feedback(connection: Connection, delivery_key: bytes, attempt: int, failure: Failure) -> bool:
    """Keep what gorush's webhook tells of an attempt that is under way, or reads as delivered; say whether it was kept.

    Whoever settles the delivery finds the failure, or the schedule does. In another state, or in another attempt, what
    the webhook tells of has had its outcome.
    """
    values = {"delivery_key": delivery_key, "attempt": attempt, "failure": failure.label}
    return connection.execute(_SQL["note_feedback"], values).rowcount > 0


def exists(connection: Connection, delivery_key: bytes) -> bool:
    """Say whether there is such a delivery."""
    return connection.execute(_SQL["exists"], {"delivery_key": delivery_key}).fetchone() is not None


def claim_feedback(connection: Connection, *, limit: int, seconds: float) -> list[bytes]:
    """Return the keys of deliveries that read as delivered, and of which the webhook told a failure.

    For `seconds` nobody else gets them; if nobody applies it by then, they come again.
    """
    rows = connection.execute(_SQL["claim_feedback"], {"limit": limit, "seconds": seconds})
    return [delivery_key for (delivery_key,) in rows]


def apply_feedback(connection: Connection, delivery_keys: Collection[bytes]) -> list[Settlement]:
    """Make those deliveries FAILED of which the webhook told a failure after they read as delivered; return them.

    Their chat ids and messages are forgotten, and nobody holds a lease.
    """
    rows = connection.execute(_SQL["apply_feedback"], {"delivery_keys": list(delivery_keys)}).fetchall()
    return [
        Settlement(
            delivery=Delivery(
                delivery_key=delivery_key,
                installation=Installation(key_hash, installation_hash),
                platform=TokenType(platform),
                notification_type=NotificationType(notification_type),
                chat_id=b"",
                message=b"",
                attempt=attempt,
                lease=NO_LEASE,
                task_id=task_id,
                trace_id=trace_id,
                seen=seen,
            ),
            state=State.FAILED,
            failure=BY_LABEL.get(failure, Failure.PLATFORM_UNCLEAR),
            version=None if version is None else int(version),
        )
        for (
            delivery_key, key_hash, installation_hash, platform, notification_type, attempt, task_id, trace_id, seen,
            failure, version,
        ) in rows
    ]  # fmt: skip
