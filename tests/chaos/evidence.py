"""What is known of a run when it is over: the only thing that the checker looks at."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.plan import Sent


class DeviceId(NamedTuple):
    """A device of a user."""

    #: Hex.
    key_hash: str
    installation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer that went over the node."""

    #: See `Sent.id`.
    id: str
    #: Registration: SUCCESS or an error. Request: the same for each item. Query: ``installation id access token``.
    results: tuple[str, ...]
    #: Request: the installation id of each item.
    about: tuple[str, ...] = ()
    #: In seconds since the epoch.
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """An attempt in gorush's log."""

    delivery_key: str
    #: ``delivered``, or what the platform said.
    outcome: str
    #: In seconds since the epoch.
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """A delivery event."""

    kind: str
    trace_id: str
    #: When it was committed, in seconds since the epoch by the clock of Postgres: those of workers may jump.
    at: float
    failure: str | None = None
    attempt: int | None = None
    #: Pseudonym, hex.
    installation: str | None = None
    #: Notifications of the message that it stands for.
    count: int = 1
    #: Of the process that wrote it.
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A row of registrations."""

    version: int
    registered: bool
    #: By the names of PushNotificationRegistration; empty once unregistered.
    content: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A row of deliveries."""

    state: str
    failure: str | None
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A fault, from its beginning until its end, in seconds since the epoch."""

    name: str
    began: float
    ended: float
    #: Processes that got a SIGKILL.
    kills: int = 0
    #: The part that it concerned.
    part: str = ""
    #: Processes of the server that were killed, or stood still.
    pids: frozenset[int] = frozenset()
    #: Whether at its end Postgres had nothing of what was committed meanwhile.
    loses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The resident memory of a process, and how long it had to wait for a processor."""

    #: Of the part that it belongs to.
    name: str
    pid: int
    #: In seconds since the epoch.
    at: float
    #: Since the process was started, in seconds.
    age: float
    #: In bytes.
    rss: int
    #: Since it was started, in seconds.
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A run."""

    sent: tuple[Sent, ...]
    answers: tuple[Answered, ...] = ()
    pushes: tuple[Pushed, ...] = ()
    events: tuple[Happened, ...] = ()
    #: Pseudonyms (hex) of the devices that were notified.
    pseudonyms: Mapping[DeviceId, str] = field(default_factory=dict)
    registrations: Mapping[DeviceId, Stored] = field(default_factory=dict)
    #: By delivery key.
    deliveries: Mapping[str, Kept] = field(default_factory=dict)
    #: What is left to be done when all is quiet, by its name.
    in_flight: Mapping[str, int] = field(default_factory=dict)
    #: What is stored when all is quiet and serves nothing any more, by the name of its table or key.
    leftovers: Mapping[str, int] = field(default_factory=dict)
    #: The envelopes in the ledger.
    ledger: AbstractSet[str] = frozenset()
    #: Messages put aside, by their envelope.
    quarantined: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Window, ...] = ()
    memory: tuple[Sample, ...] = ()
    #: How many processes ended although nobody killed them, by name.
    died: Mapping[str, int] = field(default_factory=dict)
    #: Messages that reconcile enqueued.
    healed: int = 0
    #: Seconds that a lease lasts.
    lease: float = 120.0
    #: Seconds after the longest fault within which a message is handled, and a delivery attempted again.
    message_patience: float = 300.0
    delivery_patience: float = 300.0
    #: Seconds after which a notification that was not delivered expires.
    time_to_live: float = 86_400.0
