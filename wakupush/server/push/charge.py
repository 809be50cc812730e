"""Which push requests are handled at once, and their limits: repeats, and pushes to each device."""

from collections.abc import Iterator, Sequence

from wakupush.model.limits import DEVICE_PUSHES, MINUTE, REPEATS, REPEATS_PER_MINUTE, Limit, Verdicts
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.push.lookup import RequestFacts
from wakupush.server.push.read import OpenedRequest


def express(messages: Sequence[Message], facts: RequestFacts, context: Context) -> set[bytes]:
    """Return the first envelopes of requests to a device that a push once reached, and those that nobody answers.

    The wishes of a receiver do not count: the sender must not notice them.
    """
    at_once: set[bytes] = set()
    ids = set(facts.admitted)
    for message in messages:
        content = message.content
        if not isinstance(content, OpenedRequest):
            continue
        is_silent = content.message_id in facts.over or is_late(message, context)
        if is_silent or (content.message_id not in ids and _proven(content, facts)):
            at_once.add(message.entry.hash)
        ids.add(content.message_id)
    return at_once


def exceeds(messages: Sequence[Message], facts: RequestFacts, verdicts: Verdicts) -> set[bytes]:
    """Return the requests of which all devices that a push once reached are above their limit."""
    return {
        message.entry.hash
        for message in messages
        if isinstance(message.content, OpenedRequest)
        and verdicts.hold_back_all(DEVICE_PUSHES, message.entry.hash, _proven(message.content, facts))
    }


def _proven(content: OpenedRequest, facts: RequestFacts) -> list[int]:
    """Return the positions of the items for devices that a push once reached, and whose access token they have."""
    return [
        position
        for position, address in enumerate(content.addresses)
        if address is not None
        and (receiver := facts.receivers.get(address)) is not None
        and receiver.target is not None
        and receiver.target.proven
    ]


def charge(messages: Sequence[Message], facts: RequestFacts, context: Context) -> Iterator[Limit]:
    """Yield the limits of push requests; what is silent anyway costs nothing.

    A notification is counted for the device token, whatever user's key registered it: anyone may register another's
    device token under a thousand keys. It is counted before the wishes of its receiver, which its sender must not
    notice, and unless it succeeded before.
    """
    most = context.settings.limits.pushes_per_device_per_minute
    new: set[bytes] = set()
    for message in messages:
        content, envelope = message.content, message.entry.hash
        if not isinstance(content, OpenedRequest) or content.message_id in facts.over or is_late(message, context):
            continue
        before = facts.admitted.get(content.message_id)
        repeat = None
        if before is not None or content.message_id in new:
            repeat = Limit(REPEATS, REPEATS_PER_MINUTE, MINUTE, envelope, key=content.message_id.hex())
            yield repeat
        if content.message_id in new:
            continue  # all copies of a new request have the outcome of the first
        if before is None:
            new.add(content.message_id)
        if content.request.too_many:
            continue
        for position, address in enumerate(content.addresses):
            receiver = facts.receivers.get(address) if address is not None else None
            if receiver is None or receiver.target is None or (before is not None and before.succeeded[position]):
                continue
            device = context.identity.device_digest(receiver.target).hex()
            # A repeat is counted only if it is let through: anybody can send it.
            yield Limit(DEVICE_PUSHES, most, MINUTE, envelope, position, device, after=repeat)


def is_late(message: Message, context: Context) -> bool:
    """Return whether ingest saw a request so long ago that it is neither pushed nor answered."""
    return context.task.taken - message.entry.seen > context.settings.delivery.request_max_age
