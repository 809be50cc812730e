"""How much waits, and how much is being worked on."""

from __future__ import annotations

from dataclasses import dataclass

from wakupush.model.platforms import Platform


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """What waits in a queue and what its pool works on.

    Of a long queue only a sample is read: then messages, and tasks in flight, are estimated.
    """

    #: Tasks that wait, and the messages in them.
    tasks: int
    messages: float
    #: Bytes of Redis' memory that the tasks which wait take.
    bytes: int
    #: When the oldest message of the sample began to wait, in seconds since the epoch; None if none waits. The sample
    #: includes both ends of the queue.
    oldest: float | None
    #: Taken by workers and not acknowledged. Those of a worker that died are among them until they come back.
    tasks_in_flight: float
    messages_in_flight: float


@dataclass(frozen=True, slots=True)
class DeliveryBacklog:
    """The deliveries of a platform that are not done."""

    platform: Platform
    #: Waiting for their next attempt.
    pending: int
    #: Those of them whose time has come.
    due: int
    #: Seconds for which the longest due delivery has been due; 0 if none is due.
    due_age: float
    #: Under a lease: being posted, or left behind by a worker that died.
    posting: int
