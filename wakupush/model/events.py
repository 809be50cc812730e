"""Delivery events, the contract with the data pipeline: what happened to each message and delivery, without a secret.

They are written in the transaction of their effect. The fields are versioned: a field is never renamed or given another
meaning under the same `SCHEMA_VERSION`. Events that are alike are stored as one with a count. So no message leaves more
events than there are outcomes, and what strangers send costs rows in proportion to its bytes. An event also stands for
what must have happened before it: see `history`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, Final

from wakupush.model.entries import Entry, Task
from wakupush.model.failures import Failure

SCHEMA_VERSION = 5
DAY_SECONDS = 86_400


class EventKind(StrEnum):
    """What happened."""

    #: A worker took a message out of its queue. If it was opened, the event of its outcome implies this one.
    RECEIVED = "received"
    #: The message is not for this server: none of the server's keys opens it.
    FOREIGN = "foreign"
    #: The message is a segment that waits for the others.
    SEGMENT = "segment"
    #: A worker opened the message and knows its sender. The event of its outcome implies this one.
    OPENED = "opened"
    #: The server refused the message, or notifications that it asks for; `failure` says why.
    REFUSED = "refused"
    #: A worker committed an answer to the message; `failure` is the error in the answer, empty for success.
    ANSWERED = "answered"
    #: The server admitted a notification for delivery.
    ADMITTED = "admitted"
    #: The server dropped notifications that their receivers do not want; `reason` says which option.
    FILTERED = "filtered"
    #: A worker asked gorush to push; `attempt` counts from 1. The event of its outcome implies this one.
    ATTEMPT = "attempt"
    #: gorush took the notification.
    DELIVERED = "delivered"
    #: The notification may or may not have reached the device; `failure` says why that is unknown.
    UNKNOWN = "unknown"
    #: The attempt failed; `failure` says why.
    FAILED = "failed"
    #: The notification, or its request, was too old to push.
    EXPIRED = "expired"
    #: No attempt is left; an operator can send it again.
    DEAD_LETTER = "dead_letter"
    #: The platform says that the device token is gone.
    TOKEN_DIED = "token_died"  # noqa: S105 - a name, not a password
    #: A registration was stored, and answered.
    REGISTERED = "registered"
    #: An installation was unregistered, and the request answered.
    UNREGISTERED = "unregistered"
    #: A query was answered.
    QUERIED = "queried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. A field that has no meaning for a kind is None."""

    kind: EventKind
    #: Seconds since the epoch.
    time: float
    #: Which worker process.
    worker: str
    #: The same from ingest to gorush, 16 hex digits; None if the message is not for us. It is the message's own, as in
    #: logs; stored events have a keyed digest of it, see `wakupush.protocol.identity.Identity.event_trace_id`.
    trace_id: str | None
    #: How many messages, or notifications of a message, the event stands for.
    count: int = 1
    #: The queue that the message came through.
    queue: str | None = None
    #: Seconds between ingest seeing the message and a worker taking it; of several, the longest. Only in the event that
    #: stands for `received`.
    queue_wait: float | None = None
    #: The shard that the message came from; only in the event that stands for `received`, and if it is for us.
    shard: int | None = None
    #: Seconds between the sender's time and ingest seeing the message, to a tenth; of several, the longest. Only where
    #: there is a shard, and not for a message out of a Store.
    age: float | None = None
    #: Seconds between ingest seeing the message and this event; of several, the longest.
    latency: float | None = None
    #: The name of the app; None if the server does not tell apps apart.
    app: str | None = None
    #: ios or android.
    platform: str | None = None
    #: The label of a `wakupush.model.notifications.NotificationType`.
    push_type: str | None = None
    #: The label of a `wakupush.model.failures.Failure`.
    failure: str | None = None
    #: Why a notification was filtered.
    reason: str | None = None
    #: Which attempt of a delivery, from 1; 0 if it ended before the first one.
    attempt: int | None = None
    #: Messages in the task, or notifications in the post; None in an outcome that does not imply an `attempt`.
    batch_size: int | None = None
    #: Keyed pseudonym of the user, 16 bytes, another one in each period (`period_of`); None if the event stands for
    #: several.
    key_pseudonym: bytes | None = None
    #: Keyed pseudonym of the installation, 16 bytes, of the same period; None if the event stands for several.
    installation_pseudonym: bytes | None = None


def period_of(time: float, days: int) -> int:
    """Return the number of the period of pseudonyms that a time is in: periods of some days, UTC, from the epoch on.

    Args:
        time: of the event, in seconds since the epoch.
        days: of a period.
    """
    return int(time // DAY_SECONDS) // days


#: The names of the fields, in the order of `Event`.
FIELDS = tuple(field.name for field in fields(Event))
#: The fields of which events that are alike keep the largest.
_LONGEST: Final = ("queue_wait", "age", "latency")
#: Returns the values that are equal in events that are alike.
_likeness = attrgetter(*(name for name in FIELDS if name not in {"count", *_LONGEST}))


def merge_alike(events: Iterable[Event]) -> list[Event]:
    """Return the events, those that are alike merged into one with the sum of their counts."""
    alike: dict[object, list[Event]] = {}
    for event in events:
        alike.setdefault(_likeness(event), []).append(event)
    return [_merge(group) if len(group) > 1 else group[0] for group in alike.values()]


def _merge(group: Sequence[Event]) -> Event:
    longest: dict[str, Any] = {
        name: max((value for event in group if (value := getattr(event, name)) is not None), default=None)
        for name in _LONGEST
    }
    return replace(group[0], count=sum(event.count for event in group), **longest)


def message_event(
    task: Task,
    entry: Entry,
    kind: EventKind,
    now: float,
    *,
    failure: Failure | None = None,
    reason: str | None = None,
    app: str | None = None,
    platform: str | None = None,
    push_type: str | None = None,
    count: int = 1,
    queue_wait: float | None = None,
    is_foreign: bool = False,
    pseudonyms: tuple[bytes | None, bytes | None] = (None, None),
) -> Event:
    """Return an event of a message.

    Args:
        task: that the message came in.
        now: seconds since the epoch.
        reason: why a notification is kept back.
        count: how many notifications of the message it stands for.
        queue_wait: seconds, see `Task.queue_wait`, if the event also says that a worker received the message.
        is_foreign: whether the message is not for us.
        pseudonyms: of the user and of the installation, 16 bytes each.
    """
    is_arrival = queue_wait is not None and not is_foreign
    return Event(
        kind=kind,
        time=now,
        worker=task.worker,
        trace_id=None if is_foreign else entry.trace_id,
        count=count,
        queue=task.queue.name,
        queue_wait=queue_wait,
        shard=entry.shard if is_arrival else None,
        age=entry.age if is_arrival else None,
        latency=max(0.0, now - entry.seen),
        app=app,
        platform=platform,
        push_type=push_type,
        failure=failure and failure.label,
        reason=reason,
        batch_size=task.size,
        key_pseudonym=pseudonyms[0],
        installation_pseudonym=pseudonyms[1],
    )


def message_opened(
    task: Task, entry: Entry, now: float, kind: EventKind, failure: Failure | None = None
) -> tuple[Event, Event]:
    """Return the events of a message that was received, and in which no readable message is; `kind` is what is.

    No client asks for the outcome of a foreign message: without trace ids and shards, all of a task are one event.
    """
    create = partial(message_event, task, entry, now=now, is_foreign=kind is EventKind.FOREIGN)
    return create(EventKind.RECEIVED, queue_wait=task.queue_wait(entry)), create(kind, failure=failure)


def queried(task: Task, now: float, pseudonym: bytes) -> Event:
    """Return the event of an answered query for one user, made so that it does not lead to the query.

    Stores keep each query with its time, on the topic of the user that it asks for. So the event has no trace id, and
    of the time only the hour. The user who is asked for has a separate pseudonym (16 bytes) here, which no other kind
    of event shows.
    """
    return Event(
        kind=EventKind.QUERIED,
        time=now - now % 3600.0,
        worker=task.worker,
        trace_id=None,
        queue=task.queue.name,
        key_pseudonym=pseudonym,
    )


#: The outcomes of an attempt.
OUTCOMES = frozenset({EventKind.DELIVERED, EventKind.UNKNOWN, EventKind.FAILED})
#: The outcomes of a registration that is answered with success.
_STORED_KINDS = frozenset({EventKind.REGISTERED, EventKind.UNREGISTERED})


def history(event: Event) -> tuple[EventKind, ...]:
    """Return all kinds that an event stands for, in the order in which they happened.

    The one event of a message that was opened has the wait in its queue. The outcome of an attempt has the size of its
    post. The view ``delivery_history`` has a row for each of these kinds.
    """
    kinds: tuple[EventKind, ...] = (event.kind,)
    if event.queue_wait is not None and event.kind is not EventKind.RECEIVED:
        kinds = (EventKind.RECEIVED, EventKind.OPENED, *kinds)
        if event.kind in _STORED_KINDS:
            kinds = (*kinds, EventKind.ANSWERED)
    elif event.kind in OUTCOMES and event.batch_size is not None:
        kinds = (EventKind.ATTEMPT, *kinds)
    return kinds
