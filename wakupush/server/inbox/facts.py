"""What is known when messages are decided on: which rows are wanted, how many bytes they are, and the rows."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID, uuid4

from psycopg import Connection

from wakupush.model.deliveries import RememberedRequest
from wakupush.model.entries import Entry, Task
from wakupush.model.failures import Failure
from wakupush.model.limits import Limit
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION, Queue
from wakupush.model.registrations import Address, Installation, QueriedDevice, Receiver, Stored
from wakupush.postgres import registrations, requests
from wakupush.protocol.identity import Identity
from wakupush.protocol.request import delivery_key
from wakupush.runtime.settings import Settings
from wakupush.server.inbox import budget, segments
from wakupush.server.inbox.content import (
    Elsewhere,
    Message,
    OpenedQuery,
    OpenedRegistration,
    OpenedRequest,
    Part,
    Postponed,
    RefusedContent,
)
from wakupush.server.inbox.open import Reader

#: Bytes of what is known of the users that a query asks for, at most: it is sent in segments of 150 kB.
ANSWER_BYTES: Final = 4_000_000
#: Bytes of answers to queries and of segments that one task loads; what is beyond goes into the queue again. It is
#: four of the largest answers.
TASK_BYTES: Final = 16_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a decision looks at, besides the message."""

    task: Task
    identity: Identity
    settings: Settings
    #: Seconds since the epoch.
    now: float
    #: Of the deliveries that are added.
    lease: UUID
    #: 16 random bytes, out of which ids are made.
    seed: bytes
    #: Of registrations: what is stored, and how many registered installations a key (hash of 64 bytes) has.
    stored: Mapping[Installation, Stored] = field(default_factory=dict)
    counts: Mapping[bytes, int] = field(default_factory=dict)
    #: Of queries: by key hash.
    devices: Mapping[bytes, Sequence[QueriedDevice]] = field(default_factory=dict)
    #: Of push requests, by application message id (32 bytes): what is remembered of those admitted before, without the
    #: items that failed since; which requests are over because they came too late. Then the devices to be notified.
    admitted: Mapping[bytes, RememberedRequest] = field(default_factory=dict)
    over: AbstractSet[bytes] = frozenset()
    receivers: Mapping[Address, Receiver] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The messages that are decided on, with the facts; and those that go into a queue again, unclaimed."""

    messages: list[Message]
    facts: Facts
    passed_on: list[tuple[Queue, Entry]]


def gather(
    connection: Connection,
    messages: list[Message],
    task: Task,
    reader: Reader,
    ask: Callable[[Iterable[Limit]], Mapping[Limit, bool]],
    *,
    settings: Settings,
    now: float,
) -> Gathered:
    """Read the facts of claimed messages, with one statement a table.

    The size of what is to be loaded is measured before. A message that asks for too much is refused. A task that asks
    for too much is cut, but its first message stays: the limits of a message bound it.

    Args:
        connection: in the transaction that claimed them.
        ask: says which limits let something through.
        now: seconds since the epoch.
    """
    passed_on: list[tuple[Queue, Entry]] = []
    most, used = TASK_BYTES, 0
    if any(isinstance(message.content, Part) for message in messages):
        messages, later, used = segments.put_together(connection, messages, reader, most)
        passed_on += [(task.queue, message.entry) for message in later]
        passed_on += [
            (message.content.queue, message.entry) for message in messages if isinstance(message.content, Elsewhere)
        ]
        messages = [message for message in messages if not isinstance(message.content, Elsewhere)]
    facts = Facts(
        task=task,
        identity=reader.identity,
        settings=settings,
        now=now,
        lease=uuid4(),
        seed=secrets.token_bytes(16),
    )
    if task.queue is QUERY:
        messages, later, facts = _of_queries(connection, messages, facts, most - used, ask)
        passed_on += [(task.queue, message.entry) for message in later]
    elif task.queue is REGISTRATION:
        facts = _of_registrations(connection, messages, facts)
    elif task.queue is DISPATCH:
        facts = _of_requests(connection, messages, facts)
    return Gathered(messages, facts, passed_on)


def _of_registrations(connection: Connection, messages: Sequence[Message], facts: Facts) -> Facts:
    installations = {
        message.content.installation for message in messages if isinstance(message.content, OpenedRegistration)
    }
    if not installations:
        return facts
    return replace(
        facts,
        stored=registrations.stored(connection, installations),
        counts=registrations.count_installations(connection, {each.key_hash for each in installations}),
    )


def _of_requests(connection: Connection, messages: Sequence[Message], facts: Facts) -> Facts:
    named = {
        message.content.message_id: message.content.addresses
        for message in messages
        if isinstance(message.content, OpenedRequest)
    }
    if not named:
        return facts
    admitted, over = requests.admitted(connection, named)
    addresses = {address for of_request in named.values() for address in of_request if address is not None}
    receivers = requests.receivers(connection, addresses, facts.identity.at_rest) if addresses else {}
    if admitted:
        admitted = _still_admitted(connection, messages, admitted)
    return replace(facts, admitted=admitted, over=over, receivers=receivers)


def _still_admitted(
    connection: Connection, messages: Sequence[Message], admitted: Mapping[bytes, RememberedRequest]
) -> dict[bytes, RememberedRequest]:
    """Return what is remembered of repeats, where items whose deliveries failed for good since are no success."""
    keys = {
        message.content.message_id: [
            delivery_key(message.content.request.message_id, item) for item in message.content.request.items
        ]
        for message in messages
        if isinstance(message.content, OpenedRequest) and message.content.message_id in admitted
    }
    failed = requests.failed(connection, {key for each in keys.values() for key in each})
    return {
        message_id: replace(
            admitted[message_id],
            succeeded=[
                succeeded and key not in failed
                for succeeded, key in zip(admitted[message_id].succeeded, each, strict=False)
            ],
        )
        for message_id, each in keys.items()
    }


def _of_queries(
    connection: Connection,
    messages: Sequence[Message],
    facts: Facts,
    most_bytes: int,
    ask: Callable[[Iterable[Limit]], Mapping[Limit, bool]],
) -> tuple[list[Message], list[Message], Facts]:
    """Return the messages that are decided on now, those that are too much beside them, and the facts.

    The cost of answers is charged before they are loaded; queries whose answer is too much wait.
    """
    key_hashes = {
        key for message in messages if isinstance(message.content, OpenedQuery) for key in message.content.key_hashes
    }
    if not key_hashes:
        return list(messages), [], facts
    sizes = registrations.answer_bytes(connection, key_hashes)
    charged = {
        message.entry.hash: budget.of_query(
            message.entry, message.content.key_hashes, sizes, facts.identity, facts.settings.limits
        )
        for message in messages
        if isinstance(message.content, OpenedQuery)
    }
    through = ask([limit for limits in charged.values() for limit in limits])
    now: list[Message] = []
    later: list[Message] = []
    to_load: set[bytes] = set()
    used = 0
    for message in messages:
        content = message.content
        if not isinstance(content, OpenedQuery):
            now.append(message)
            continue
        size = sum(sizes.get(key, 0) for key in content.key_hashes)
        if size > ANSWER_BYTES:
            now.append(replace(message, content=RefusedContent(content.asker, Failure.QUERY_LIMIT)))
        elif not all(through[limit] for limit in charged[message.entry.hash]):
            now.append(replace(message, content=Postponed(for_key=False)))
        elif used and used + size > most_bytes:
            later.append(message)
        else:
            now.append(message)
            used += size
            to_load.update(key for key in content.key_hashes if key in sizes)
    devices = registrations.devices(connection, to_load, facts.identity.at_rest) if to_load else {}
    return now, later, replace(facts, devices=devices)
