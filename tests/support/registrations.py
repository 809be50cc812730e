"""Decisions on registrations: what came of them, and what they are counted for."""

from support.deciding import (
    ALICE,
    ALLOW,
    IDENTITY,
    facts,
    messages,
    registering,
    unregistering,
)
from wakupush.model.failures import Answer
from wakupush.model.limits import FIRST_REGISTRATIONS, HOUR, INSTALLATIONS, MINUTE, REPEATS, Limit
from wakupush.model.queues import REGISTRATION
from wakupush.model.registrations import Stored
from wakupush.protocol.registration import parse_response
from wakupush.server.inbox.decide.registration import decide

REGISTERED = ["received", "opened", "registered", "answered"]
SUCCESS, MALFORMED, MISMATCH, UNSUPPORTED, INTERNAL = (
    None,
    Answer.MALFORMED_MESSAGE,
    Answer.VERSION_MISMATCH,
    Answer.UNSUPPORTED_TOKEN_TYPE,
    Answer.INTERNAL_ERROR,
)


def refused(failure):
    told_too = [] if failure.answer is Answer.SILENCE else [f"answered: {failure.label}"]
    return ["received", "opened", f"refused: {failure.label}", *told_too]


def after(*changes, **fields):
    """Return the facts after these registrations and unregistrations."""
    stored = {
        each.installation: Stored(each.message.version, each.request_digest, not unregisters(each)) for each in changes
    }
    counts = {}
    for each, state in stored.items():
        counts[each.key_hash] = counts.get(each.key_hash, 0) + state.registered
    return facts(REGISTRATION, stored=stored, counts=counts, **fields)


def unregisters(asked):
    return asked.message.unregister


def decide_one(asked, known, verdicts=ALLOW):
    [outcome] = decide(messages(asked), known, verdicts)
    return outcome


def answers(outcomes):
    return [parse_response(outcome.reply.inner).error if outcome.reply else "silence" for outcome in outcomes]


V2, GONE = registering(2), unregistering(2)


def firsts(message, in_all=100_000, of_key=20):
    """Return what a first registration of Alice is counted for."""
    alice = IDENTITY.pseudonym(ALICE.public_key.key_hash).hex()
    first = Limit(FIRST_REGISTRATIONS, in_all, HOUR, message.hash)
    return first, Limit(INSTALLATIONS, of_key, HOUR, message.hash, key=alice, after=first)


def repeats(asked, message, most=3):
    return Limit(REPEATS, most, MINUTE, message.hash, key=asked.request_digest.hex())
