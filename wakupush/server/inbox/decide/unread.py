"""Deciding on messages that are not for us, cannot be read, are a part of one, or wait."""

from wakupush.model.events import EventKind, message_opened
from wakupush.model.failures import Failure
from wakupush.server.inbox.content import Message, Part, Postponed
from wakupush.server.inbox.facts import Facts
from wakupush.server.inbox.outcome import Outcome


def decide(message: Message, content: Failure | Part | Postponed, facts: Facts) -> Outcome:
    """Return the outcome of a message; its content is the second argument."""
    task, entry, now = facts.task, message.entry, facts.now
    if isinstance(content, Postponed):
        return Outcome(entry=entry, events=(), postponed=content)
    if isinstance(content, Part):
        return Outcome(entry=entry, events=message_opened(task, entry, now, EventKind.SEGMENT), keep=content)
    kind = EventKind.FOREIGN if content is Failure.NOT_FOR_US else EventKind.REFUSED
    events = message_opened(task, entry, now, kind, content)
    return Outcome(entry=entry, events=events, forget=message.last_part)
