"""Decisions on push requests: what was pushed, and what the sender is told."""

from support.asking import item, target
from support.deciding import (
    CAROL,
    IDENTITY,
    PHONE,
    TABLET,
    entry,
)
from wakupush.model.failures import Answer
from wakupush.model.limits import DEVICE_PUSHES, MINUTE, Limit
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.protocol.request import delivery_key, parse_response

SUCCESS, NOT_REGISTERED, WRONG_TOKEN, INTERNAL = (
    None,
    Answer.NOT_REGISTERED,
    Answer.WRONG_TOKEN,
    Answer.INTERNAL_ERROR,
)
WRONG, TO_NOBODY = item(access_token="x"), item(CAROL)
MENTION, JOINING = NotificationType.MENTION, NotificationType.REQUEST_TO_JOIN_COMMUNITY
CONTACT = NotificationType.CONTACT_REQUEST


def reports(outcome):
    return [report.error for report in parse_response(outcome.reply.inner).reports] if outcome.reply else "silence"


def pushed(outcome):
    return [admission.delivery.delivery_key for admission in outcome.admissions]


def keys(*items, number=1):
    return [delivery_key(b"id %d" % number, each) for each in items]


def charge(number, position=0, device=PHONE, most=60, after=None):
    """Return what a notification of an envelope for one of Alice's devices is charged to."""
    platform = {PHONE: Platform.IOS, TABLET: Platform.ANDROID}[device]
    digest = IDENTITY.device_digest(target(platform))
    return Limit(DEVICE_PUSHES, most, MINUTE, entry(number).hash, position, digest.hex(), after=after)
