"""Deciding on registrations as they arrive."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Answer, Failure
from wakupush.model.limits import FIRST_REGISTRATIONS, INSTALLATIONS, REPEATS, Verdicts
from wakupush.model.platforms import Platform, TokenType
from wakupush.model.registrations import Change, Registration
from wakupush.protocol import registration as rules
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.apps import app_of
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.engine.outcome import Outcome, Reply
from wakupush.server.registration.charge import Charge, charges
from wakupush.server.registration.installations import Installations, change_of
from wakupush.server.registration.read import OpenedRegistration, RefusedRegistration

#: Refusals of devices that no app of the settings takes.
_WITHOUT_APP: Final = {
    TokenType.APN: Failure.APN_TOPIC_WITHOUT_APP,
    TokenType.FIREBASE: Failure.FIREBASE_WITHOUT_APP,
}


@dataclass(frozen=True, slots=True)
class RegistrationEffect:
    """What is stored for a registration that is answered with success."""

    #: None for a repeat.
    change: Change | None
    #: The user (hash of 64 bytes) whose query topics must be watched; None if the installation is not registered now.
    #: On success the server MUST be listening, also when it answers a repeat.
    watched_user: bytes | None


def decide(messages: Sequence[Message], facts: Installations, verdicts: Verdicts, context: Context) -> list[Outcome]:
    """Return the outcomes of registrations, in their order: each sees what those before it left."""
    installations = facts.copy()
    by_message = {charge.message: charge for charge in charges(messages, facts, context)}
    outcomes = []
    for message in messages:
        if isinstance(message.content, OpenedRegistration):
            charge = by_message[message.entry.hash]
            outcome = _decide(message, charge, installations=installations, verdicts=verdicts, context=context)
            if isinstance(outcome.effect, RegistrationEffect) and (change := outcome.effect.change) is not None:
                installations.take(change.installation, change.row)
            outcomes.append(outcome)
        elif isinstance(message.content, RefusedRegistration):
            failure = message.content.failure
            if not verdicts.allow(REPEATS, message.entry.hash):
                failure = Failure.REPEATED_TOO_OFTEN
            pseudonyms = context.identity.user_pseudonym(message.content.client.key_hash, context.period), None
            outcomes.append(_refused(message, message.content, failure, context=context, pseudonyms=pseudonyms))
    return outcomes


def _decide(
    message: Message, charge: Charge, *, installations: Installations, verdicts: Verdicts, context: Context
) -> Outcome:
    content = charge.content
    pseudonyms = context.identity.pseudonyms(content.installation, context.period)
    refuse = partial(_refused, message, content, context=context, pseudonyms=pseudonyms)
    if charge.first and not all(verdicts.allow(name, charge.first) for name in (FIRST_REGISTRATIONS, INSTALLATIONS)):
        return refuse(Failure.REGISTRATION_RATE_LIMIT)
    if not verdicts.allow(REPEATS, message.entry.hash):
        return refuse(Failure.REPEATED_TOO_OFTEN)
    try:
        change = change_of(
            context.identity,
            content,
            installations,
            most_installations=context.settings.limits.installations_per_key,
            limits=rules.LIMITS,
        )
        change = change and _with_app(change, context.settings)
    except Refused as refused:
        return refuse(refused.failure)
    # What was not counted because of a registration that was then refused is held back: nothing passes uncounted.
    if change is None and not charge.is_repeat:
        return refuse(Failure.REPEATED_TOO_OFTEN)
    if change is not None and not charge.first and content.installation not in installations.stored:
        return refuse(Failure.REGISTRATION_RATE_LIMIT)
    entry = message.entry
    create = partial(message_event, context.task, entry, now=context.now, queue_wait=context.task.queue_wait(entry))
    if change is None:
        is_registered = installations.is_registered(content.installation)
        event = create(EventKind.ANSWERED)
    else:
        is_registered = isinstance(change.registration, Registration)
        kind = EventKind.REGISTERED if is_registered else EventKind.UNREGISTERED
        event = create(kind, app=change.app or None, platform=_platform(change), pseudonyms=pseudonyms)
    return Outcome(
        entry=entry,
        events=(event,),
        replies=(_reply(content, None),),
        effect=RegistrationEffect(change, content.installation.key_hash if is_registered else None),
        last_part=message.last_part,
    )


def _with_app(change: Change, settings: Settings) -> Change:
    """Return a change with the app that takes its device.

    Raises:
        Refused: no app of the settings takes it.
    """
    registration = change.registration
    if not isinstance(registration, Registration):
        return change
    app = app_of(registration, settings)
    if app is None:
        raise Refused(_WITHOUT_APP[registration.token_type])
    return replace(change, app=app)


def _refused(
    message: Message,
    content: OpenedRegistration | RefusedRegistration,
    failure: Failure,
    *,
    context: Context,
    pseudonyms: tuple[bytes | None, bytes | None],
) -> Outcome:
    entry = message.entry
    create = partial(message_event, context.task, entry, now=context.now, failure=failure)
    events = [create(EventKind.REFUSED, queue_wait=context.task.queue_wait(entry), pseudonyms=pseudonyms)]
    replies: tuple[Reply, ...] = ()
    if failure.answer is not Answer.SILENCE:
        replies = (_reply(content, failure),)
        events.append(create(EventKind.ANSWERED))
    return Outcome(entry=entry, events=tuple(events), replies=replies, last_part=message.last_part)


def _reply(content: OpenedRegistration | RefusedRegistration, failure: Failure | None) -> Reply:
    inner = rules.encode_response(content.request_id, failure)
    return Reply(content.client, content.server, Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE, inner)


def _platform(change: Change) -> str | None:
    registration = change.registration
    return Platform(registration.token_type).label if isinstance(registration, Registration) else None
