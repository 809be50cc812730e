"""Deciding on push requests (71, Sending Client): who is notified, once, and the answer to the sender."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import blake2b
from uuid import UUID

from wakupush.model.deliveries import Delivery
from wakupush.model.entries import Entry, Task
from wakupush.model.events import Event, EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.model.limits import DEVICE_PUSHES, MINUTE, Limit, Verdicts
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Address, Target
from wakupush.protocol import registration
from wakupush.protocol import request as rules
from wakupush.protocol.application import Type
from wakupush.protocol.notification import fitting
from wakupush.protocol.request import Filtered
from wakupush.server.inbox import budget
from wakupush.server.inbox.content import Message, OpenedRequest, RefusedContent
from wakupush.server.inbox.facts import Facts
from wakupush.server.inbox.outcome import Admission, DecidedRequest, Outcome, Reply


def decide(messages: Sequence[Message], facts: Facts, verdicts: Verdicts) -> list[Outcome]:
    """Return the outcomes of push requests, in their order.

    The same message in two envelopes is decided once: both answers report the same.
    """
    decided: dict[bytes, DecidedRequest] = {}
    delivery_keys: set[bytes] = set()
    outcomes = []
    for message in messages:
        outcome = _decide(message, facts, verdicts, decided=decided, delivery_keys=delivery_keys)
        if outcome.request is not None:
            decided.setdefault(outcome.request.message_id, outcome.request)
        delivery_keys.update(admission.delivery.delivery_key for admission in outcome.admissions)
        outcomes.append(outcome)
    return outcomes


def corrected(task: Task, outcome: Outcome, failed: Mapping[bytes, Failure], now: float) -> Outcome | None:
    """Return the new outcome of a request if some of its deliveries failed for good since; None if none did.

    Args:
        failed: by delivery key.
        now: seconds since the epoch.
    """
    if outcome.request is None:
        return None
    items = zip(outcome.request.delivery_keys, outcome.request.failures, strict=True)
    failures = tuple(failed.get(key, failure) if key else failure for key, failure in items)
    if failures == outcome.request.failures:
        return None
    request = replace(outcome.request, failures=failures)
    answered = message_event(task, outcome.entry, EventKind.ANSWERED, now, failure=_first(request.failures))
    return Outcome(entry=outcome.entry, events=(answered,), reply=_reply(request), request=request)


def _decide(
    message: Message,
    facts: Facts,
    verdicts: Verdicts,
    *,
    decided: Mapping[bytes, DecidedRequest],
    delivery_keys: AbstractSet[bytes],
) -> Outcome:
    """Return the outcome of a message after the requests `decided` before it, which have deliveries of these keys."""
    if facts.task.taken - message.entry.seen > facts.settings.delivery.request_max_age:
        expired = _silent(message, facts, EventKind.EXPIRED, Failure.REQUEST_EXPIRED)
        return replace(expired, expired=_expired(message, facts))
    match message.content:
        case OpenedRequest(message_id=message_id) as content if message_id not in facts.over:
            return _decide_request(message, content, facts, verdicts, decided=decided, delivery_keys=delivery_keys)
        case OpenedRequest():
            failure = Failure.REQUEST_OVER
        case RefusedContent(failure=failure):
            pass
        case _:
            failure = Failure.TYPE_UNSUPPORTED
    return _silent(message, facts, EventKind.REFUSED, failure)


def _decide_request(
    message: Message,
    content: OpenedRequest,
    facts: Facts,
    verdicts: Verdicts,
    *,
    decided: Mapping[bytes, DecidedRequest],
    delivery_keys: AbstractSet[bytes],
) -> Outcome:
    limits: tuple[Limit, ...] = ()
    twin = decided.get(content.message_id)
    if twin is not None or content.message_id in facts.admitted:
        limits = (budget.of_repeat(message.entry, content.message_id),)
        if not verdicts.allow(limits[0]):
            return _silent(message, facts, EventKind.REFUSED, Failure.REPEATED_TOO_OFTEN, limits)
    if twin is not None:
        return _answered(message, facts, replace(twin, sender=content.sender), limits)
    if content.request.too_many:
        refused = message_event(facts.task, message.entry, EventKind.REFUSED, facts.now, failure=Failure.REQUEST_LIMIT)
        refused_items = [_Item(Failure.REQUEST_LIMIT)] * len(content.request.items)
        return _answered(message, facts, _decided_request(content, refused_items, facts), limits, events=(refused,))
    items = [_decide_item(message, content, position, facts, verdicts) for position in range(len(content.addresses))]
    admissions: dict[bytes, Admission] = {}
    for item in items:
        if item.admission is not None and item.delivery_key is not None and item.delivery_key not in delivery_keys:
            admissions.setdefault(item.delivery_key, item.admission)
    reasons = [reason for item in items if (reason := item.failure or item.filtered) is not None]
    return _answered(
        message,
        facts,
        _decided_request(content, items, facts),
        limits + tuple(item.limit for item in items if item.limit is not None),
        events=_withheld_events(message.entry, reasons, facts) if reasons else (),
        admissions=tuple(admissions.values()),
    )


def _withheld_events(entry: Entry, reasons: Iterable[Failure | Filtered], facts: Facts) -> tuple[Event, ...]:
    """Return an event for each reason, with its count: what strangers ask for costs a row a reason, not an item."""
    return tuple(
        message_event(facts.task, entry, EventKind.REFUSED, facts.now, failure=reason, count=count)
        if isinstance(reason, Failure)
        else message_event(facts.task, entry, EventKind.FILTERED, facts.now, reason=reason.value, count=count)
        for reason, count in Counter(reasons).items()
    )


def _expired(message: Message, facts: Facts) -> OpenedRequest | None:
    """Return a request that waited in our own queues until it was too old, if it could have been pushed.

    A request that only claims to be old does not count: an honest one in another envelope would be lost by it.
    """
    content = message.content
    if not message.entry.live or not isinstance(content, OpenedRequest):
        return None
    receivers = (facts.receivers.get(address) for address in content.addresses if address is not None)
    return content if any(receiver and receiver.preferences.token_fits for receiver in receivers) else None


@dataclass(frozen=True, slots=True)
class _Item:
    """The decision on a notification that a request asks for."""

    #: What is reported to its sender, None for success.
    failure: Failure | None
    #: Why it is kept back although its sender gets a success.
    filtered: Filtered | None = None
    limit: Limit | None = None
    delivery_key: bytes | None = None
    admission: Admission | None = None
    #: Of the device, if this looks as if it were pushed now.
    platform: Platform | None = None


def _decide_item(message: Message, content: OpenedRequest, position: int, facts: Facts, verdicts: Verdicts) -> _Item:
    """Decide on an item; one that succeeded in an earlier envelope of the request does so again, without a push.

    All that its sender could notice is checked, and charged, before the wishes of its receiver.
    """
    before = facts.admitted.get(content.message_id)
    if before is not None and before.succeeded[position]:
        return _Item(None)
    item, address = content.request.items[position], content.addresses[position]
    receiver = facts.receivers.get(address) if address is not None else None
    decision = rules.decide(
        item, receiver.preferences if receiver else None, most_bytes=registration.LIMITS.list_item_bytes
    )
    if isinstance(decision, Failure):
        return _Item(decision)
    if address is None or receiver is None or (target := receiver.target) is None:
        raise AssertionError("a notification was let through without a registered device or its access token")
    # Whatever user's key registered it: anyone may register another's device token under a thousand keys.
    device = facts.identity.device_digest(target)
    most = facts.settings.limits.pushes_per_device_per_minute
    # A repeat is charged only if it is let through: anybody can send it.
    after = None if before is None else budget.of_repeat(message.entry, content.message_id)
    limit = Limit(DEVICE_PUSHES, most, MINUTE, message.entry.hash, position, device.hex(), after=after)
    if decision is not None:
        return _Item(None, decision, limit, platform=target.platform)
    address = replace(address, access_token=b"") if receiver.contacts_only else address
    delivery = _delivery(message.entry, content, position, address, target, facts=facts)
    if not verdicts.allow(limit):
        delivery = budget.shrunk(delivery, limit, facts.now)
    admitted = message_event(
        facts.task,
        message.entry,
        EventKind.ADMITTED,
        facts.now,
        platform=target.platform.label,
        pseudonyms=facts.identity.pseudonyms(address.installation),
    )
    return _Item(None, None, limit, delivery.delivery_key, Admission(delivery, target, admitted), target.platform)


def _delivery(
    entry: Entry, content: OpenedRequest, position: int, address: Address, target: Target, *, facts: Facts
) -> Delivery:
    item = content.request.items[position]
    delivery_key = rules.delivery_key(content.request.message_id, item)
    delivery = Delivery(
        delivery_key=delivery_key,
        installation=address.installation,
        platform=target.platform,
        notification_type=NotificationType(item.type),
        chat_id=item.chat_id,
        message=item.message,
        attempt=1,
        lease=facts.lease,
        task_id=str(UUID(bytes=blake2b(facts.seed + delivery_key, digest_size=16).digest(), version=4)),
        trace_id=entry.trace_id,
        seen=entry.seen,
        address=address,
    )
    return replace(delivery, message=fitting(facts.settings.gorush.dialect, delivery, target))


def _decided_request(content: OpenedRequest, items: Sequence[_Item], facts: Facts) -> DecidedRequest:
    return DecidedRequest(
        content.sender,
        content.message_id,
        content.request,
        failures=tuple(item.failure for item in items),
        delivery_keys=tuple(item.delivery_key for item in items),
        platforms=tuple(item.platform for item in items),
        before=facts.admitted.get(content.message_id),
    )


def _answered(
    message: Message,
    facts: Facts,
    request: DecidedRequest,
    limits: tuple[Limit, ...],
    *,
    events: tuple[Event, ...] = (),
    admissions: tuple[Admission, ...] = (),
) -> Outcome:
    task, entry, now = facts.task, message.entry, facts.now
    failure = _first(request.failures)
    answered = message_event(
        task, entry, EventKind.ANSWERED, now, failure=failure, queue_wait=facts.task.queue_wait(message.entry)
    )
    return Outcome(
        entry=entry,
        events=(*events, answered),
        limits=limits,
        reply=_reply(request),
        request=request,
        admissions=admissions,
        forget=message.last_part,
    )


def _silent(
    message: Message, facts: Facts, kind: EventKind, failure: Failure, limits: tuple[Limit, ...] = ()
) -> Outcome:
    event = message_event(
        facts.task, message.entry, kind, facts.now, failure=failure, queue_wait=facts.task.queue_wait(message.entry)
    )
    return Outcome(entry=message.entry, events=(event,), limits=limits, forget=message.last_part)


def _reply(request: DecidedRequest) -> Reply:
    inner = rules.encode_response(request.request, request.failures)
    return Reply(request.sender, Type.PUSH_NOTIFICATION_RESPONSE, inner)


def _first(failures: Iterable[Failure | None]) -> Failure | None:
    return next(filter(None, failures), None)
