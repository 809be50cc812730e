"""The outcomes of messages that no kind decides on: not for us, not readable, a part of one, or deferred."""

from wakupush.model.events import EventKind, message_event, message_opened
from wakupush.model.failures import Failure
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Deferred, Elsewhere, Malformed, Message, Part, Readable
from wakupush.server.engine.outcome import Outcome


def decide(message: Message, context: Context) -> Outcome:
    """Return the outcome of a message."""
    task, entry, now = context.task, message.entry, context.now
    match message.content:
        case Readable() | Elsewhere():
            raise AssertionError("a message that a kind decides on came to the engine")
        case Deferred() as deferred:
            return Outcome(entry=entry, events=(), deferred=deferred)
        case Part() as part:
            events = message_opened(task, entry, now, EventKind.SEGMENT)
            return Outcome(entry=entry, events=events, waiting_part=part)
        case Malformed(failure):
            return silence(message, EventKind.REFUSED, failure, context)
        case Failure() as failure:
            kind = EventKind.FOREIGN if failure is Failure.NOT_FOR_US else EventKind.REFUSED
            events = message_opened(task, entry, now, kind, failure)
            return Outcome(entry=entry, events=events, last_part=message.last_part)


def silence(message: Message, kind: EventKind, failure: Failure, context: Context) -> Outcome:
    """Return the outcome of a message of a known sender that is not answered, with an event of this kind."""
    wait = context.task.queue_wait(message.entry)
    event = message_event(context.task, message.entry, kind, context.now, failure=failure, queue_wait=wait)
    return Outcome(entry=message.entry, events=(event,), last_part=message.last_part)
