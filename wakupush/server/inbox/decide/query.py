"""Deciding on queries for access tokens (71, Querying a Server)."""

from collections.abc import Sequence

from wakupush.model.events import EventKind, message_event, queried
from wakupush.model.failures import Failure
from wakupush.model.limits import Verdicts
from wakupush.protocol import query as rules
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.server.inbox.content import Message, OpenedQuery, RefusedContent
from wakupush.server.inbox.facts import Facts
from wakupush.server.inbox.outcome import Outcome, Reply


def decide(messages: Sequence[Message], facts: Facts, _: Verdicts) -> list[Outcome]:
    """Return the outcomes of queries; none affects another. Their answers were charged when the facts were read."""
    outcomes = []
    for message in messages:
        if isinstance(message.content, OpenedQuery):
            outcomes.append(_decide(message, message.content, facts))
        elif isinstance(message.content, RefusedContent):
            outcomes.append(_refused(message, message.content.failure, facts))
    return outcomes


def _decide(message: Message, query: OpenedQuery, facts: Facts) -> Outcome:
    task, entry, now = facts.task, message.entry, facts.now
    devices = [device for key in query.key_hashes for device in facts.devices.get(key, ())]
    try:
        inner = rules.encode_response(query.message_id, devices)
    except Refused as refused:
        return _refused(message, refused.failure, facts)
    if len(query.key_hashes) == 1:
        # The usual query. The pseudonym shows which user is query for unusually often.
        answered = queried(task, now, facts.identity.queried_pseudonym(query.key_hashes[0]))
    else:
        answered = message_event(task, entry, EventKind.QUERIED, now)
    events = (
        answered,
        message_event(task, entry, EventKind.ANSWERED, now, queue_wait=facts.task.queue_wait(message.entry)),
    )
    reply = Reply(query.asker, Type.PUSH_NOTIFICATION_QUERY_RESPONSE, inner)
    return Outcome(entry=entry, events=events, reply=reply, forget=message.last_part)


def _refused(message: Message, failure: Failure, facts: Facts) -> Outcome:
    task, entry, now = facts.task, message.entry, facts.now
    refused = message_event(
        task, entry, EventKind.REFUSED, now, failure=failure, queue_wait=facts.task.queue_wait(message.entry)
    )
    return Outcome(entry=entry, events=(refused,), forget=message.last_part)
