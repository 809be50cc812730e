"""Deciding on push requests: who is notified, once, and the answer to the sender."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import blake2b
from uuid import UUID

from wakupush.model.deliveries import Delivery, RememberedRequest
from wakupush.model.entries import Entry
from wakupush.model.events import Event, EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.model.limits import DEVICE_PUSHES, MINUTE, REPEATS, Verdicts
from wakupush.model.notifications import NotificationType
from wakupush.model.registrations import Address, Target
from wakupush.protocol import registration
from wakupush.protocol import request as rules
from wakupush.protocol.application import Type
from wakupush.protocol.notification import fitting
from wakupush.protocol.request import Filtered
from wakupush.server.delivery.apps import app_of
from wakupush.server.delivery.retry import times_to_live
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.engine.outcome import Outcome, Reply
from wakupush.server.engine.unread import silence
from wakupush.server.push.charge import is_late
from wakupush.server.push.lookup import RequestFacts
from wakupush.server.push.read import OpenedRequest


@dataclass(frozen=True, slots=True)
class Admission:
    """A notification that is to be pushed, unless it is known already."""

    delivery: Delivery
    target: Target
    #: The event to write if it is not known.
    event: Event


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A push request with the answer to its sender."""

    opened: OpenedRequest
    #: For each item what is reported to its sender, None for success.
    failures: tuple[Failure | None, ...]
    #: For each item the delivery that it waits for.
    delivery_keys: tuple[bytes | None, ...]
    #: What is remembered of it, if it came before.
    before: RememberedRequest | None
    admissions: tuple[Admission, ...] = ()
    #: Whether it was stored with other failures: only what is remembered of it is to change.
    is_correction: bool = False


@dataclass(frozen=True, slots=True)
class ExpiredRequest:
    """A push request that expired in our own queues; it is remembered, so that it is never pushed."""

    #: Of the application message, 32 bytes.
    message_id: bytes


def decide(messages: Sequence[Message], facts: RequestFacts, verdicts: Verdicts, context: Context) -> list[Outcome]:
    """Return the outcomes of push requests, in their order.

    The same message in two envelopes is decided once: both answers report the same.
    """
    answered: dict[bytes, AnsweredRequest] = {}
    delivery_keys: set[bytes] = set()
    outcomes = []
    for message in messages:
        if isinstance(message.content, OpenedRequest):
            outcome = _decide(
                message, message.content, facts, verdicts, context, answered=answered, delivery_keys=delivery_keys
            )
            if isinstance(request := outcome.effect, AnsweredRequest):
                answered.setdefault(message.content.message_id, request)
                delivery_keys.update(admission.delivery.delivery_key for admission in request.admissions)
            outcomes.append(outcome)
    return outcomes


def _decide(
    message: Message,
    content: OpenedRequest,
    facts: RequestFacts,
    verdicts: Verdicts,
    context: Context,
    *,
    answered: Mapping[bytes, AnsweredRequest],
    delivery_keys: AbstractSet[bytes],
) -> Outcome:
    """Return the outcome of a request after those `answered` before it, which have deliveries of these keys."""
    if is_late(message, context):
        expired = silence(message, EventKind.EXPIRED, Failure.REQUEST_EXPIRED, context)
        return replace(expired, effect=_expired(message, content, facts))
    if content.message_id in facts.over:
        return silence(message, EventKind.REFUSED, Failure.REQUEST_OVER, context)
    if not verdicts.allow(REPEATS, message.entry.hash):
        return silence(message, EventKind.REFUSED, Failure.REPEATED_TOO_OFTEN, context)
    if (twin := answered.get(content.message_id)) is not None:
        opened = replace(twin.opened, sender=content.sender)
        return _answered(message, replace(twin, opened=opened, admissions=()), context)
    if content.request.too_many:
        refusal = message_event(
            context.task, message.entry, EventKind.REFUSED, context.now, failure=Failure.REQUEST_LIMIT
        )
        refused_items = [_Item(Failure.REQUEST_LIMIT)] * len(content.request.items)
        return _answered(message, _request(content, refused_items, facts, ()), context, events=(refusal,))
    items = [
        _decide_item(message, content, position, facts, verdicts, context=context)
        for position in range(len(content.addresses))
    ]
    admissions: dict[bytes, Admission] = {}
    for item in items:
        if item.admission is not None and item.delivery_key is not None and item.delivery_key not in delivery_keys:
            admissions.setdefault(item.delivery_key, item.admission)
    reasons = [reason for item in items if (reason := item.failure or item.filtered) is not None]
    request = _request(content, items, facts, tuple(admissions.values()))
    return _answered(message, request, context, events=_withheld_events(message.entry, reasons, context))


def _withheld_events(entry: Entry, reasons: Iterable[Failure | Filtered], context: Context) -> tuple[Event, ...]:
    """Return an event for each reason, with its count: what strangers ask for costs a row a reason, not an item."""
    return tuple(
        message_event(context.task, entry, EventKind.REFUSED, context.now, failure=reason, count=count)
        if isinstance(reason, Failure)
        else message_event(context.task, entry, EventKind.FILTERED, context.now, reason=reason.value, count=count)
        for reason, count in Counter(reasons).items()
    )


def _expired(message: Message, content: OpenedRequest, facts: RequestFacts) -> ExpiredRequest | None:
    """Return a request that waited in our own queues until it was too old, if it could have been pushed.

    A request that only claims to be old does not count: an honest one in another envelope would be lost by it.
    """
    if not message.entry.live:
        return None
    receivers = (facts.receivers.get(address) for address in content.addresses if address is not None)
    fits = any(receiver and receiver.preferences.token_fits for receiver in receivers)
    return ExpiredRequest(content.message_id) if fits else None


@dataclass(frozen=True, slots=True)
class _Item:
    """The decision on a notification that a request asks for."""

    #: What is reported to its sender, None for success.
    failure: Failure | None
    #: Why it is kept back although its sender gets a success.
    filtered: Filtered | None = None
    delivery_key: bytes | None = None
    admission: Admission | None = None


def _decide_item(
    message: Message,
    content: OpenedRequest,
    position: int,
    facts: RequestFacts,
    verdicts: Verdicts,
    *,
    context: Context,
) -> _Item:
    """Decide on an item; one that succeeded in an earlier envelope of the request does so again, without a push.

    All that its sender could notice is checked before the wishes of its receiver.
    """
    item, address = content.request.items[position], content.addresses[position]
    before = facts.admitted.get(content.message_id)
    if before is not None and before.succeeded[position]:
        # Its delivery may fail before this answer leaves.
        return _Item(None, delivery_key=rules.delivery_key(content.request.message_id, item))
    receiver = facts.receivers.get(address) if address is not None else None
    decision = rules.decide(
        item, receiver.preferences if receiver else None, most_bytes=registration.LIMITS.list_item_bytes
    )
    if isinstance(decision, Failure):
        return _Item(decision)
    if address is None or receiver is None or (target := receiver.target) is None:
        raise AssertionError("a notification was let through without a registered device or its access token")
    if decision is not None:
        return _Item(None, decision)
    app = app_of(target, context.settings) or ""
    address = replace(address, access_token=b"") if receiver.contacts_only else address
    delivery = _delivery(message.entry, content, position, address, target, app=app, context=context)
    if not verdicts.allow(DEVICE_PUSHES, message.entry.hash, position):
        delivery = _shrunk(delivery, context.identity.device_digest(target), context)
    admitted = message_event(
        context.task,
        message.entry,
        EventKind.ADMITTED,
        context.now,
        app=app or None,
        platform=target.platform.label,
        push_type=delivery.notification_type.label,
        pseudonyms=context.identity.pseudonyms(address.installation, context.period),
    )
    return _Item(None, None, delivery.delivery_key, Admission(delivery, target, admitted))


def _delivery(
    entry: Entry,
    content: OpenedRequest,
    position: int,
    address: Address,
    target: Target,
    *,
    app: str,
    context: Context,
) -> Delivery:
    item = content.request.items[position]
    delivery_key = rules.delivery_key(content.request.message_id, item)
    delivery = Delivery(
        delivery_key=delivery_key,
        installation=address.installation,
        app=app,
        platform=target.platform,
        notification_type=NotificationType(item.type),
        chat_id=item.chat_id,
        message=item.message,
        attempt=1,
        lease=context.lease,
        task_id=str(UUID(bytes=blake2b(context.seed + delivery_key, digest_size=16).digest(), version=4)),
        trace_id=entry.trace_id,
        seen=entry.seen,
        expires_at=_expiry(NotificationType(item.type), context),
        address=address,
    )
    message = fitting(context.profiles.of(app), delivery, target)
    return delivery if message else replace(delivery, message=message)


def _expiry(kind: NotificationType, context: Context) -> float:
    return context.now + times_to_live(context.settings.delivery)[kind]


def _shrunk(delivery: Delivery, device: bytes, context: Context) -> Delivery:
    """Return the one notification a minute, without content, that stands for all those beyond a device's limit.

    The first half of its key is the digest of the device (16 bytes). APNs collapses by it: the device shows one at a
    time.
    """
    minute = int(context.now // MINUTE).to_bytes(8, "big")
    return replace(
        delivery,
        delivery_key=device + blake2b(device + minute, digest_size=16).digest(),
        notification_type=NotificationType.MESSAGE,
        expires_at=_expiry(NotificationType.MESSAGE, context),
        chat_id=b"",
        message=b"",
    )


def _request(
    content: OpenedRequest, items: Sequence[_Item], facts: RequestFacts, admissions: tuple[Admission, ...]
) -> AnsweredRequest:
    return AnsweredRequest(
        content,
        failures=tuple(item.failure for item in items),
        delivery_keys=tuple(item.delivery_key for item in items),
        before=facts.admitted.get(content.message_id),
        admissions=admissions,
    )


def _answered(
    message: Message, request: AnsweredRequest, context: Context, *, events: tuple[Event, ...] = ()
) -> Outcome:
    answered = message_event(
        context.task,
        message.entry,
        EventKind.ANSWERED,
        context.now,
        failure=first_failure(request),
        queue_wait=context.task.queue_wait(message.entry),
    )
    return Outcome(
        entry=message.entry,
        events=(*events, answered),
        replies=(reply(request),),
        effect=request,
        delivery_keys=frozenset(key for key in request.delivery_keys if key is not None),
        last_part=message.last_part,
    )


def reply(request: AnsweredRequest) -> Reply:
    """Return the answer to the sender of a request."""
    opened = request.opened
    inner = rules.encode_response(opened.request, request.failures)
    return Reply(opened.sender, opened.server, Type.PUSH_NOTIFICATION_RESPONSE, inner)


def first_failure(request: AnsweredRequest) -> Failure | None:
    """Return the failure of the first item that failed."""
    return next(filter(None, request.failures), None)
