"""Events as a server would have written them, made at random, and written as the workers write them."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, date, datetime, time, timedelta

from support.deciding import IDENTITY
from wakupush.model.events import Event, EventKind
from wakupush.model.failures import Failure
from wakupush.postgres import events

#: Days of a period of pseudonyms that began at the epoch and ends long after the tests.
FOR_EVER = 100_000
QUEUES = ("registration", "query", "dispatch")
TODAY = datetime.now(UTC).date()
#: The first of the days that events are made for; the third has none.
FIRST = TODAY - timedelta(days=5)
EMPTY = FIRST + timedelta(days=2)
LAST = FIRST + timedelta(days=4)


def kept_from(day: date) -> float:
    """Return a retention in seconds that keeps this day and later ones, although midnight may have passed."""
    return 86_400.0 * (datetime.now(UTC).date() - day).days


def seconds(day: date) -> float:
    return datetime.combine(day, time.min, UTC).timestamp()


def day_of(event: Event) -> date:
    return datetime.fromtimestamp(event.time, UTC).date()


def pseudonym(*of: object) -> bytes:
    return hashlib.sha256(repr(of).encode()).digest()[:16]


#: Days that events are made for.
DAYS = tuple(FIRST + timedelta(days=offset) for offset in range(5) if FIRST + timedelta(days=offset) != EMPTY)


def make(messages: int, seed: int = 1, users: int = 72, days: tuple[date, ...] = DAYS) -> list[Event]:
    """Return the events of some messages, of which some users get far more than others."""
    chance = random.Random(seed)
    made_events = []
    for number in range(messages):
        begin = seconds(chance.choice(days)) + chance.randrange(86_000_000) / 1000
        made_events += _of_message(chance, begin, hashlib.sha256(f"{seed} {number}".encode()).hexdigest()[:16], users)
    return made_events


def _of_message(chance: random.Random, begin: float, trace_id: str, users: int) -> list[Event]:
    made_events: list[Event] = []

    def add(kind: EventKind, after: int, **values: object) -> None:
        made_events.append(
            Event(
                kind=kind,
                time=begin + after / 1000,
                worker="one:1",
                latency=after / 1000,
                **({"trace_id": trace_id} | values),
            )
        )

    def person(number: int) -> dict[str, object]:
        platform = ("ios", "android")[number % 2]
        return {
            "platform": platform,
            # One user has twelve devices.
            "key_pseudonym": pseudonym("user", 1 if 1 <= number <= 12 else number),
            "installation_pseudonym": pseudonym("device", number),
        }

    queue = chance.choices(QUEUES, (2, 3, 10))[0]
    wait = chance.randrange(1, 400)
    arrival = {"shard": 32 + int(trace_id[0], 16) % 3, "age": int(trace_id[1], 16) / 10 if trace_id[2] != "0" else None}
    push_type = ("message", "message", "message", "contact_request")[int(trace_id[3], 16) % 4]
    common = {"queue": queue, "batch_size": chance.randint(1, 4)}
    if queue == "dispatch" and chance.random() < 0.3:
        common |= {"trace_id": None, "count": chance.choice((1, 1, 3))}
        add(EventKind.RECEIVED, wait, queue_wait=wait / 1000, **common)
        add(EventKind.FOREIGN, wait + 1, failure=Failure.NOT_FOR_US.label, **common)
        return made_events
    add(EventKind.RECEIVED, wait, queue_wait=wait / 1000, **common | arrival)
    add(EventKind.OPENED, wait + 1, **common)
    if queue == "dispatch" and trace_id[5] == "0":
        add(EventKind.EXPIRED, wait + 600_000, **common, failure=Failure.REQUEST_EXPIRED.label)
        return made_events
    member = chance.randrange(users)
    if queue == "registration":
        kind = EventKind.UNREGISTERED if chance.random() < 0.2 else EventKind.REGISTERED
        add(kind, wait + 2, **common, **person(member))
    elif queue == "query" and trace_id[4] == "0":
        add(EventKind.REFUSED, wait + 2, **common, failure=Failure.QUERY_LIMIT.label)
        return made_events
    elif queue == "query":
        add(EventKind.QUERIED, wait + 2, **common, key_pseudonym=pseudonym("user", member))
    else:
        for _ in range(chance.choice((1, 1, 1, 2, 7))):
            # User 0 gets a third of all.
            who = person(0 if chance.random() < 0.33 else chance.randrange(users))
            _notify(chance, add, who | {"app": "app", "push_type": push_type}, wait + 3)
    add(EventKind.ANSWERED, wait + 9, **common)
    return made_events


def _notify(chance, add, who, after) -> None:
    fate = chance.random()
    if fate < 0.1:
        reason = chance.choice(("disabled", "muted_chat"))
        add(EventKind.FILTERED, after, queue="dispatch", reason=reason, count=chance.choice((1, 2)))
        return
    add(EventKind.ADMITTED, after, queue="dispatch", **who)
    attempts = chance.choices((1, 2, 3, 4), (20, 2, 1, 1))[0]
    for attempt in range(1, attempts + 1):
        common = {"queue": "dispatch", "attempt": attempt, **who}
        add(EventKind.ATTEMPT, after + 5 * attempt, **common)
        if attempt < attempts:
            add(EventKind.FAILED, after + 5 * attempt + 2, failure=Failure.PLATFORM_UNAVAILABLE.label, **common)
        elif fate < 0.15:
            add(EventKind.FAILED, after + 5 * attempt + 2, failure=Failure.TOKEN_UNREGISTERED.label, **common)
            add(EventKind.TOKEN_DIED, after + 5 * attempt + 2, failure=Failure.TOKEN_UNREGISTERED.label, **common)
        elif fate < 0.17:
            add(EventKind.UNKNOWN, after + 5 * attempt + 2, failure=Failure.GORUSH_TIMED_OUT.label, **common)
        elif fate < 0.19:
            add(EventKind.FAILED, after + 5 * attempt + 2, failure=Failure.PLATFORM_UNAVAILABLE.label, **common)
            add(EventKind.EXPIRED, after + 5 * attempt + 3, failure=Failure.DELIVERY_EXPIRED.label, **common)
        else:
            add(EventKind.DELIVERED, after + 5 * attempt + chance.randrange(2, 300), **common)


def write(connection, made_events: list[Event], size: int = 97) -> None:
    """Write events in many transactions, in an order that is not that of their times."""
    for start in range(0, len(made_events), size):
        with connection.transaction():
            events.add(connection, made_events[start : start + size], IDENTITY)


def ignore(*_: object) -> None:
    """Take no note of how far a job is."""
