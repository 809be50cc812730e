"""What the engine knows of a kind of message: a row of the table in `wakupush.server.worker`."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from psycopg import Connection

from wakupush.gorush.profiles import Profiles
from wakupush.model.entries import Task
from wakupush.model.events import Event, period_of
from wakupush.model.limits import Limit, Verdicts
from wakupush.model.queues import Queue
from wakupush.model.registrations import Installation
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.identity import Identity
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.posting import Failed, Posting
from wakupush.server.engine.message import Malformed, Message, Readable
from wakupush.server.engine.outcome import Outcome

#: What a kind measures, and what it looks up.
Measured = TypeVar("Measured")
Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the decisions on the messages of a task have in common. All chance and time in them comes from here."""

    task: Task
    identity: Identity
    settings: Settings
    profiles: Profiles
    #: Seconds since the epoch.
    now: float
    #: Bytes that `look_up` may load.
    room: int
    #: Whether the pool `rest` handles what is not `express`.
    divides: bool = False
    #: Whether it may wait for other tasks: nobody waits behind the pool `rest`, nor behind a message alone.
    is_patient: bool = False
    #: Monotonic seconds before the transaction, from whose beginning on leases last.
    began: float = field(default_factory=time.monotonic)
    #: Of the deliveries that are added.
    lease: UUID = field(default_factory=uuid4)
    #: 16 random bytes, out of which ids are made.
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    @property
    def period(self) -> int:
        """The period of the pseudonyms in events."""
        return period_of(self.now, self.settings.pipeline.pseudonym_days)


@dataclass(frozen=True, slots=True)
class Stored:
    """What storing the outcomes of a task led to."""

    #: Deliveries under a lease of this worker, to be posted after the commit.
    postings: Sequence[Posting] = ()
    #: Besides those of the outcomes.
    events: Sequence[Event] = ()
    #: Query topics (4 bytes each) that ingest must watch before the answers leave.
    topics: Collection[bytes] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Measured, Facts]):
    """A kind of message. Its functions stand here in the order in which they are called.

    `read`, `express`, `charge`, `exceeds`, `decide`, `correct` and `owner` are pure. All messages that a function gets
    were read by `read`.
    """

    queue: Queue
    #: The type of its application message.
    type: Type.ValueType
    #: Whether its answers are published again after some seconds: they go to keys that clients make for one question.
    repeats_answers: bool
    #: Of a kind that comes on topics whose key is public, where no other kind is read: returns the keys (32 bytes each)
    #: that may open a message of these topics (4 bytes each); None stands for a key that is not derived yet.
    keys: Callable[[Connection, Collection[bytes]], Mapping[bytes, Sequence[bytes | None]]] | None = None
    #: Parses and checks one message; also one that was joined from segments.
    read: Callable[[Opened, Identity], Readable | Malformed]
    #: Of a kind that arrives on topics of another one: returns which of these users (key hashes) have a device that a
    #: push once reached. What all others sign goes to the pool `rest` without a look at it.
    proven: Callable[[Connection, Collection[bytes]], AbstractSet[bytes]] | None = None
    #: Returns sizes, and what else `charge` needs.
    measure: Callable[[Connection, Sequence[Message], Context], Measured]
    #: Returns the messages (hashes of 32 bytes) that are handled at once: those for a device that a push once reached,
    #: which a stranger cannot make up, and those that cost little.
    express: Callable[[Sequence[Message], Measured, Context], AbstractSet[bytes]]
    #: Returns the limits that the messages are counted for.
    charge: Callable[[Sequence[Message], Measured, Context], Iterable[Limit]]
    #: Returns those among these (hashes of 32 bytes) whose users or devices are above a limit: they are not handled at
    #: once after all.
    exceeds: Callable[[Sequence[Message], Measured, Verdicts], AbstractSet[bytes]] | None = None
    #: Returns all that `decide` needs, and the messages (hashes of 32 bytes) that are too much in this task: a later
    #: one handles and counts them. The first one is never among these. None if `decide` needs nothing but what was
    #: measured.
    look_up: (
        Callable[[Connection, Sequence[Message], Measured, Verdicts, Context], tuple[Facts, AbstractSet[bytes]]] | None
    ) = None
    #: Returns the outcomes of messages, in their order.
    decide: Callable[[Sequence[Message], Facts, Verdicts, Context], list[Outcome]]
    #: Writes the rows that only this kind has.
    store: Callable[[Connection, Sequence[Outcome], Context], Stored]
    #: Returns the outcome that takes the place of one whose deliveries failed; None if that outcome is still true.
    correct: Callable[[Outcome, Failed, Context], Outcome | None] | None = None
    #: Returns the installation that a message is about: if it unregisters, the quarantine forgets the message.
    owner: Callable[[Readable], Installation | None] | None = None


class Kinds:
    """The table of the kinds, each on a queue of its own."""

    def __init__(self, *kinds: Kind[Any, Any]) -> None:
        self.by_queue = {kind.queue.name: kind for kind in kinds}
        self.by_type: dict[int, Kind[Any, Any]] = {kind.type: kind for kind in kinds}
