"""Deciding on registrations (71, Registering Client), by workers as they arrive, and by a rebuild again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Answer, Failure
from wakupush.model.limits import FIRST_REGISTRATIONS, HOUR, INSTALLATIONS, MINUTE, REPEATS, Limit, Verdicts
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Change, Installation, Registration, Stored
from wakupush.protocol import registration as rules
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PublicKey
from wakupush.server.inbox import budget
from wakupush.server.inbox.content import Message, OpenedRegistration, RefusedContent
from wakupush.server.inbox.facts import Facts
from wakupush.server.inbox.outcome import Outcome, Reply


@dataclass(frozen=True, slots=True)
class Installations:
    """What is stored that affects some registrations, and what was decided on them so far."""

    stored: dict[Installation, Stored] = field(default_factory=dict)
    #: How many registered installations a key (hash of 64 bytes) has.
    counts: dict[bytes, int] = field(default_factory=dict)

    def is_registered(self, installation: Installation) -> bool:
        """Whether an installation is registered, and not unregistered since."""
        return installation in self.stored and self.stored[installation].registered

    def take(self, change: Change) -> None:
        """Take over a change: what comes after it is decided as if it were stored."""
        registered = isinstance(change.registration, Registration)
        key_hash = change.installation.key_hash
        gained = int(registered) - int(self.is_registered(change.installation))
        self.counts[key_hash] = self.counts.get(key_hash, 0) + gained
        self.stored[change.installation] = Stored(change.registration.version, change.request_digest, registered)


def change_of(
    identity: Identity,
    content: OpenedRegistration,
    installations: Installations,
    *,
    most_installations: int,
    limits: rules.Limits,
) -> Change | None:
    """Return what is to be stored, or None for a repeat of what is stored already.

    If the stored device token is dead, nothing counts as a repeat: only a higher version revives the registration. So
    its client learns that it has to register anew, and a copy that somebody else sends has no effect.

    Raises:
        Refused: what `wakupush.protocol.registration.check` finds, or INSTALLATION_LIMIT.
    """
    stored = installations.stored.get(content.installation)
    if stored is not None and stored.request_digest == content.request_digest and not stored.token_died:
        return None
    registration = rules.check(
        content.message,
        client=content.client,
        server=identity.public_key,
        stored_version=stored.version if stored else 0,
        limits=limits,
    )
    is_new = not installations.is_registered(content.installation)
    is_full = installations.counts.get(content.installation.key_hash, 0) >= most_installations
    if is_new and is_full and isinstance(registration, Registration):
        raise Refused(Failure.INSTALLATION_LIMIT)
    return Change(content.installation, content.request_digest, registration)


def decide(messages: Sequence[Message], facts: Facts, verdicts: Verdicts) -> list[Outcome]:
    """Return the outcomes of registrations, in their order."""
    installations = Installations(dict(facts.stored), dict(facts.counts))
    outcomes = []
    for message in messages:
        if isinstance(message.content, OpenedRegistration):
            outcome = _decide(message, message.content, installations, facts, verdicts)
            if outcome.change is not None:
                installations.take(outcome.change)
            outcomes.append(outcome)
        elif isinstance(message.content, RefusedContent):
            signer, request_id, failure = message.content.signer, message.content.request_id, message.content.failure
            pseudonyms = facts.identity.pseudonym(signer.key_hash), None
            outcomes.append(_refused(message, signer, request_id, failure, facts=facts, pseudonyms=pseudonyms))
    return outcomes


def _decide(
    message: Message, content: OpenedRegistration, installations: Installations, facts: Facts, verdicts: Verdicts
) -> Outcome:
    pseudonyms = facts.identity.pseudonyms(content.installation)
    refuse = partial(_refused, message, content.client, content.request_id, facts=facts, pseudonyms=pseudonyms)
    try:
        change = change_of(
            facts.identity,
            content,
            installations,
            most_installations=facts.settings.limits.installations_per_key,
            limits=rules.LIMITS,
        )
    except Refused as refused:
        return refuse(refused.failure)
    limits: tuple[Limit, ...] = ()
    if change is None or content.installation not in installations.stored:
        limits, failure = _limits(message, content, facts, is_repeat=change is None)
        if not all(map(verdicts.allow, limits)):
            return refuse(failure, limits=limits)
    entry = message.entry
    create = partial(message_event, facts.task, entry, now=facts.now, queue_wait=facts.task.queue_wait(entry))
    if change is None:
        is_registered = installations.is_registered(content.installation)
        event = create(EventKind.ANSWERED)
    else:
        is_registered = isinstance(change.registration, Registration)
        kind = EventKind.REGISTERED if is_registered else EventKind.UNREGISTERED
        event = create(kind, platform=_platform(change), pseudonyms=pseudonyms)
    return Outcome(
        entry=entry,
        events=(event,),
        limits=limits,
        reply=_reply(content.client, content.request_id, None),
        change=change,
        # On success the server MUST be listening, also when it answers a repeat.
        listening=content.installation.key_hash if is_registered else None,
        forget=message.last_part,
    )


def _limits(
    message: Message, content: OpenedRegistration, facts: Facts, *, is_repeat: bool
) -> tuple[tuple[Limit, ...], Failure]:
    """Return the limits that a registration is counted for, and the failure of one above them."""
    limits, hash_ = facts.settings.limits, message.entry.hash
    if is_repeat:
        key = content.request_digest.hex()
        return (Limit(REPEATS, budget.REPEATS_PER_MINUTE, MINUTE, hash_, key=key),), Failure.REPEATED_TOO_OFTEN
    user = facts.identity.pseudonym(content.installation.key_hash).hex()
    first = Limit(FIRST_REGISTRATIONS, limits.first_registrations_per_hour, HOUR, hash_)
    # A stranger makes up keys: counters of those that are refused anyway would fill Redis.
    of_user = Limit(INSTALLATIONS, limits.installations_per_key_per_hour, HOUR, hash_, key=user, after=first)
    return (first, of_user), Failure.REGISTRATION_RATE_LIMIT


def _refused(
    message: Message,
    client: PublicKey,
    request_id: bytes,
    failure: Failure,
    *,
    facts: Facts,
    pseudonyms: tuple[bytes | None, bytes | None],
    limits: tuple[Limit, ...] = (),
) -> Outcome:
    entry = message.entry
    create = partial(message_event, facts.task, entry, now=facts.now, failure=failure)
    events = [create(EventKind.REFUSED, queue_wait=facts.task.queue_wait(entry), pseudonyms=pseudonyms)]
    reply = None
    if failure.answer is not Answer.SILENCE:
        reply = _reply(client, request_id, failure)
        events.append(create(EventKind.ANSWERED))
    return Outcome(entry=entry, events=tuple(events), limits=limits, reply=reply, forget=message.last_part)


def _reply(client: PublicKey, request_id: bytes, failure: Failure | None) -> Reply:
    inner = rules.encode_response(request_id, failure)
    return Reply(client, Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE, inner)


def _platform(change: Change) -> str | None:
    registration = change.registration
    return Platform(registration.token_type).label if isinstance(registration, Registration) else None
