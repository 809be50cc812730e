"""Accepting push requests (71, Sending Client): who is notified, once, and what the sender is told."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wakupush.events import EventKind
from wakupush.failures import Failure
from wakupush.protocol import request as rules
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.request import Admitted, Filtered, NotificationType
from wakupush.server.batch import seal_answer
from wakupush.server.deliveries import Posting, times_to_live
from wakupush.server.limiter import DEVICE_PUSHES, REPEATS
from wakupush.server.opening import open_asymmetric
from wakupush.state import deliveries, events, registrations, requests
from wakupush.state.deliveries import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import Connection

    from wakupush.protocol.keys import PublicKey
    from wakupush.protocol.registration import TokenType
    from wakupush.protocol.request import Item, Preferences, Request
    from wakupush.queues import Entry
    from wakupush.server.batch import Batch
    from wakupush.state.registrations import Installation


@dataclass(slots=True)
class Asked:
    """A push request that is being answered."""

    entry: Entry
    sender: PublicKey
    #: Of the application message, 32 bytes.
    message_id: bytes
    request: Request
    installations: list[Installation]
    #: For each item what its sender is told so far, None for success.
    failures: list[Failure | None] = field(default_factory=list)
    #: For each item the delivery that it waits for.
    delivery_keys: list[bytes | None] = field(default_factory=list)

    @property
    def succeeded(self) -> list[bool]:
        """For each item whether its sender is told of success."""
        return [failure is None for failure in self.failures]

    @property
    def first_failure(self) -> Failure | None:
        """The first thing that its sender is told to have failed."""
        return next((failure for failure in self.failures if failure), None)

    def encode_response(self) -> bytes:
        """Return the PushNotificationResponse as of now."""
        return rules.encode_response(self.request, self.failures)


@dataclass(slots=True)
class Accepted:
    """What a batch of requests leaves to be done once it is committed."""

    #: In the order of the batch's answers.
    asked: list[Asked] = field(default_factory=list)
    #: Deliveries under a lease of this worker.
    postings: list[Posting] = field(default_factory=list)


def handle(batch: Batch, connection: Connection, entries: list[Entry]) -> Accepted:
    """Handle the push requests of a batch; the caller commits, then posts.

    The answers that are committed here say success for what is durably ours: they are true whatever dies next.
    """
    context = batch.context
    key = context.identity.private_key
    opened = [(entry, open_asymmetric(entry, key)) for entry in entries]
    asked = [
        request
        for entry, message in batch.admit(connection, opened)
        if (request := _parse(batch, entry, message.signer, message.message_id, message.inner)) is not None
    ]
    accepted = Accepted()
    if not asked:
        return accepted
    admitted = requests.admitted(connection, {each.message_id for each in asked})
    decided: dict[bytes, Asked] = {}
    devices = registrations.preferences(connection, _named(asked))
    wanted: dict[bytes, Delivery] = {}
    for each in asked:
        before = admitted.get(each.message_id)
        if before is not None and not batch.allows(
            each.entry, REPEATS, context.settings.limits.repeats_per_minute, each.message_id.hex()
        ):
            batch.record(each.entry, EventKind.REFUSED, failure=Failure.REPEATED_TOO_OFTEN)
            continue
        twin = decided.setdefault(each.message_id, each)
        if twin is each:
            _decide(batch, each, devices, before, wanted)
        else:
            # The same message in two envelopes of one batch: both answers tell the same, also when corrected.
            each.failures, each.delivery_keys = list(twin.failures), twin.delivery_keys
        accepted.asked.append(each)
        batch.answer(
            each.entry,
            each.sender,
            Type.PUSH_NOTIFICATION_RESPONSE,
            each.encode_response(),
            failure=each.first_failure,
        )
    requests.admit(connection, {each.message_id: each.succeeded for each in accepted.asked if any(each.succeeded)})
    accepted.postings = _add(batch, connection, accepted.asked, wanted.values())
    return accepted


def correct(batch: Batch, connection: Connection, accepted: Accepted, failed: dict[bytes, Failure]) -> None:
    """Rewrite the answers whose deliveries are known to have failed before they left; the caller commits.

    Args:
        batch: whose answers are still in the outbox.
        connection: in a transaction.
        accepted: what `handle` returned.
        failed: failures by delivery key.
    """
    told = len(batch.events)
    for position, each in enumerate(accepted.asked):
        failures = [
            failed.get(delivery_key, failure) if delivery_key else failure
            for delivery_key, failure in zip(each.delivery_keys, each.failures, strict=True)
        ]
        if failures != each.failures:
            each.failures = failures
            kind = Type.PUSH_NOTIFICATION_RESPONSE
            answer = seal_answer(batch.context, each.entry, each.sender, kind, each.encode_response())
            batch.replace_answer(connection, position, answer)
            batch.record(each.entry, EventKind.ANSWERED, failure=each.first_failure)
            requests.admit(connection, {each.message_id: each.succeeded})
    events.add(connection, batch.events[told:])


def _parse(batch: Batch, entry: Entry, sender: PublicKey, message_id: bytes, inner: bytes) -> Asked | None:
    settings = batch.context.settings
    if batch.taken - entry.seen > settings.delivery.request_max_age:
        batch.record(entry, EventKind.EXPIRED, failure=Failure.REQUEST_EXPIRED)
        return None
    try:
        request = rules.parse_request(inner, most_items=settings.limits.request_items)
    except Refused as refused:
        batch.record(entry, EventKind.REFUSED, failure=refused.failure)
        return None
    identity = batch.context.identity
    installations = [identity.installation(item.key_hash, item.installation_id) for item in request.items]
    return Asked(entry, sender, message_id, request, installations)


def _named(asked: list[Asked]) -> dict[Installation, set[bytes]]:
    """Return the installations that requests name, and for each the chats and authors."""
    named: dict[Installation, set[bytes]] = {}
    for each in asked:
        for item, installation in zip(each.request.items, each.installations, strict=True):
            named.setdefault(installation, set()).update((item.chat_id, item.author))
    return named


def _decide(
    batch: Batch,
    asked: Asked,
    devices: dict[Installation, tuple[TokenType, Preferences]],
    before: list[bool] | None,
    wanted: dict[bytes, Delivery],
) -> None:
    """Decide on each item; what is to be sent is added to `wanted`.

    An item that succeeded in an earlier envelope of the same message does so again, without a push.
    """
    if asked.request.too_many:
        batch.record(asked.entry, EventKind.REFUSED, failure=Failure.REQUEST_LIMIT)
        asked.failures = [Failure.REQUEST_LIMIT] * len(asked.request.items)
        asked.delivery_keys = [None] * len(asked.request.items)
        return
    for position, (item, installation) in enumerate(zip(asked.request.items, asked.installations, strict=True)):
        platform, device = devices.get(installation, (None, None))
        decision = rules.decide(item, device)
        delivery_key = None
        if before is not None and before[position]:
            decision = Admitted.ADMITTED
        elif (
            decision is Admitted.ADMITTED
            and platform is not None
            and not _may_push(batch, asked.entry, installation, position)
        ):
            decision = Failure.DEVICE_RATE_LIMIT
            batch.record(asked.entry, EventKind.REFUSED, failure=decision, installation=installation)
        elif decision is Admitted.ADMITTED and platform is not None:
            delivery_key = rules.delivery_key(asked.request.message_id, item)
            wanted.setdefault(delivery_key, _delivery(asked, item, installation, platform, delivery_key))
        elif isinstance(decision, Filtered):
            batch.record(asked.entry, EventKind.FILTERED, reason=decision.value, installation=installation)
        elif isinstance(decision, Failure):
            batch.record(asked.entry, EventKind.REFUSED, failure=decision, installation=installation)
        asked.failures.append(decision if isinstance(decision, Failure) else None)
        asked.delivery_keys.append(delivery_key)


def _may_push(batch: Batch, entry: Entry, installation: Installation, position: int) -> bool:
    """Count a notification of a device, and say whether it is within the limit."""
    most = batch.context.settings.limits.pushes_per_device_per_minute
    return batch.allows(entry, DEVICE_PUSHES, most, installation.installation_hash.hex(), position=position)


def _delivery(
    asked: Asked, item: Item, installation: Installation, platform: TokenType, delivery_key: bytes
) -> Delivery:
    return Delivery(
        delivery_key=delivery_key,
        installation=installation,
        platform=platform,
        notification_type=NotificationType(item.type),
        chat_id=item.chat_id,
        message=item.message,
        attempt=1,
        lease=uuid.uuid4(),
        task_id=str(uuid.uuid4()),
        trace_id=asked.entry.trace_id,
        seen=asked.entry.seen,
    )


def _add(batch: Batch, connection: Connection, asked: list[Asked], wanted: Iterable[Delivery]) -> list[Posting]:
    """Add the deliveries that are new, under a lease of this worker."""
    wanted = list(wanted)
    settings = batch.context.settings.delivery
    added = deliveries.add(connection, wanted, seconds=settings.lease, time_to_live=times_to_live(settings))
    targets = registrations.targets(connection, {delivery.installation for delivery in wanted}) if added else {}
    entries = {key: each.entry for each in reversed(asked) for key in each.delivery_keys if key}
    postings = []
    for delivery in wanted:
        if delivery.delivery_key in added:
            postings.append(Posting(delivery, targets.get(delivery.installation)))
            batch.record(
                entries[delivery.delivery_key],
                EventKind.ADMITTED,
                platform=delivery.platform.platform,
                installation=delivery.installation,
            )
    return postings
