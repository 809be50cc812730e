"""Deciding on queries."""

from collections.abc import Sequence

from wakupush.model.events import EventKind, message_event, queried
from wakupush.model.failures import Failure
from wakupush.model.limits import Verdicts
from wakupush.model.registrations import QueriedDevice
from wakupush.protocol import query as rules
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PublicKey
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Deferred, Message
from wakupush.server.engine.outcome import Outcome, Reply
from wakupush.server.engine.unread import silence
from wakupush.server.query.charge import is_allowed, is_too_large
from wakupush.server.query.lookup import QueriedUsers
from wakupush.server.query.read import OpenedQuery


def decide(messages: Sequence[Message], users: QueriedUsers, verdicts: Verdicts, context: Context) -> list[Outcome]:
    """Return the outcomes of queries; none affects another."""
    return [
        _decide(message, message.content, users, verdicts, context)
        for message in messages
        if isinstance(message.content, OpenedQuery)
    ]


def _decide(message: Message, query: OpenedQuery, users: QueriedUsers, verdicts: Verdicts, context: Context) -> Outcome:
    task, entry, now = context.task, message.entry, context.now
    if is_too_large(query, users.sizes):
        return silence(message, EventKind.REFUSED, Failure.QUERY_LIMIT, context)
    if not is_allowed(entry, query, verdicts):
        return Outcome(entry=entry, events=(), deferred=Deferred(for_key=False))
    try:
        replies = _replies(query, users, context)
    except Refused as refused:
        return silence(message, EventKind.REFUSED, refused.failure, context)
    if len(query.key_hashes) == 1:
        # The usual query. The pseudonym shows which user is asked for unusually often.
        answered = queried(task, now, context.identity.queried_pseudonym(query.key_hashes[0], context.period))
    else:
        answered = message_event(task, entry, EventKind.QUERIED, now)
    events = answered, message_event(task, entry, EventKind.ANSWERED, now, queue_wait=task.queue_wait(entry))
    return Outcome(entry=entry, events=events, replies=replies, last_part=message.last_part)


def _replies(query: OpenedQuery, users: QueriedUsers, context: Context) -> tuple[Reply, ...]:
    """Return an answer for each of the server's keys that the devices know: their grants name it.

    Raises:
        Refused: NOTHING_KNOWN.
    """
    by_key: dict[PublicKey, list[QueriedDevice]] = {}
    for key_hash in query.key_hashes:
        for device in users.devices.get(key_hash, ()):
            if (key := context.identity.by_id.get(device.server_key)) is not None:
                by_key.setdefault(key, []).append(device)
    if not by_key:
        raise Refused(Failure.NOTHING_KNOWN)
    return tuple(
        Reply(
            query.sender,
            key,
            Type.PUSH_NOTIFICATION_QUERY_RESPONSE,
            rules.encode_response(query.message_id, devices),
        )
        for key, devices in by_key.items()
    )
