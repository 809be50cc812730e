"""Which registrations are handled at once, and their limits: repeats and refused ones, and first registrations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wakupush.model.limits import FIRST_REGISTRATIONS, HOUR, INSTALLATIONS, MINUTE, REPEATS, REPEATS_PER_MINUTE, Limit
from wakupush.model.registrations import Installation, Stored
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.registration.installations import Installations
from wakupush.server.registration.read import OpenedRegistration, RefusedRegistration


@dataclass(frozen=True, slots=True)
class Charge:
    """What a registration is counted as. Its grant is not verified before."""

    content: OpenedRegistration
    #: Hash of its envelope, 32 bytes.
    message: bytes
    #: Whether the same registration came before.
    is_repeat: bool
    #: Whether it is refused for what is in it, or for what is stored.
    is_refused: bool
    #: The message for which the first registration of its installation is counted: it and the plausible ones that come
    #: after it in a task share the verdict. None if something is stored of it, or this one is not plausible.
    first: bytes | None


def charges(messages: Sequence[Message], stored: Installations, context: Context) -> Iterator[Charge]:
    """Yield what registrations are counted as, each as if the plausible ones before it were stored."""
    installations, firsts = stored.copy(), dict[Installation, bytes]()
    most_installations = context.settings.limits.installations_per_key
    for message in messages:
        content, envelope = message.content, message.entry.hash
        if not isinstance(content, OpenedRegistration):
            continue
        is_repeat = installations.is_repeat(content)
        is_plausible = is_repeat or content.is_plausible
        before = installations.stored.get(content.installation)
        is_newer = content.message.version > (before.version if before else 0)
        is_new = is_plausible and is_newer and not installations.is_full(content, most_installations)
        if is_new:
            if content.installation not in stored.stored:
                firsts.setdefault(content.installation, envelope)
            row = Stored(content.message.version, content.request_digest, not content.message.unregister)
            installations.take(content.installation, row)
        first = firsts.get(content.installation) if is_plausible else None
        yield Charge(content, envelope, is_repeat, not is_repeat and not is_new, first)


def express(messages: Sequence[Message], installations: Installations, _: Context) -> set[bytes]:
    """Return the registrations of users with a device that a push once reached."""
    return {
        message.entry.hash
        for message in messages
        if isinstance(message.content, OpenedRegistration)
        and message.content.installation.key_hash in installations.proven
    }


def charge(messages: Sequence[Message], installations: Installations, context: Context) -> Iterator[Limit]:
    """Yield the limits of registrations: one for a repeat or a refused one, two for the first one of an installation.

    Anybody can send a recorded registration again, in new envelopes. One that is refused may be of a stranger's making,
    and has a counter for two minutes.
    """
    limits = context.settings.limits
    for message in messages:
        if isinstance(message.content, RefusedRegistration):
            yield _repeat(message.entry.hash, context.identity.request_digest(message.content.request_id))
    for charge in charges(messages, installations, context):
        if charge.is_repeat or charge.is_refused:
            yield _repeat(charge.message, charge.content.request_digest)
        elif charge.first == charge.message:
            first = Limit(FIRST_REGISTRATIONS, limits.first_registrations_per_hour, HOUR, charge.message)
            yield first
            # A stranger makes up keys: counters of those that are refused anyway would fill Redis.
            user = context.identity.pseudonym(charge.content.installation.key_hash).hex()
            most = limits.installations_per_key_per_hour
            yield Limit(INSTALLATIONS, most, HOUR, charge.message, key=user, after=first)


def _repeat(message: bytes, request_digest: bytes) -> Limit:
    return Limit(REPEATS, REPEATS_PER_MINUTE, MINUTE, message, key=request_digest.hex())
