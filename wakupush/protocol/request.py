"""PushNotificationRequest: its items, and the reports about them (71, Sending Client)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from wakupush.model.failures import Answer, Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.registrations import Preferences
from wakupush.pb.push_notification_pb2 import (
    PushNotification,
    PushNotificationReport,
    PushNotificationRequest,
    PushNotificationResponse,
)
from wakupush.protocol import wire
from wakupush.protocol.errors import Refused


class Filtered(Enum):
    """Why a notification is reported as sent but not sent: its sender must not learn the user's preferences."""

    DISABLED = "disabled"
    BLOCKED_AUTHOR = "blocked_author"
    BLOCKED_CHAT = "blocked_chat"
    MUTED_CHAT = "muted_chat"
    MENTIONS_BLOCKED = "mentions_blocked"
    MENTION_NOT_ALLOWED = "mention_not_allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One notification that a request asks for."""

    #: 64 bytes, or it names no user.
    key_hash: bytes
    installation_id: str
    access_token: str = field(repr=False)
    #: A number of `NotificationType`, or an unknown number.
    type: int
    #: SHAKE-256 of the chat id.
    chat_id: bytes = field(repr=False)
    #: SHAKE-256 of the author's key as text.
    author: bytes = field(repr=False)
    #: The message, encrypted to the receiving client.
    message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came."""

    #: Chosen by the sender, up to `ECHO_BYTES`.
    message_id: bytes
    items: tuple[Item, ...]
    #: Whether there were more items than allowed; then `items` are the first ones.
    too_many: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The server's report about one notification."""

    key_hash: bytes
    installation_id: str
    #: None for success.
    error: Answer | None


@dataclass(frozen=True, slots=True)
class RequestResponse:
    """A server's answer to a request."""

    #: Message id of the request.
    message_id: bytes
    reports: tuple[Report, ...]


#: A request with too many items is answered for the first ones if it has at most this many times as many as are
#: looked at. One with more is answered by silence.
_TIMES_ANSWERED: Final = 8
#: Bytes of a message id, and of what an answer repeats of an item, at most. Clients send 32 bytes of an id, 64 of a key
#: hash, and a uuid.
ECHO_BYTES: Final = 128


def encode_request(request: Request) -> bytes:
    """Return the PushNotificationRequest."""
    return PushNotificationRequest(
        requests=[
            PushNotification(
                access_token=item.access_token,
                chat_id=item.chat_id,
                public_key=item.key_hash,
                installation_id=item.installation_id,
                message=item.message,
                type=PushNotification.PushNotificationType.ValueType(item.type),
                author=item.author,
            )
            for item in request.items
        ],
        message_id=request.message_id,
    ).SerializeToString()


def parse_request(inner: bytes, *, most_items: int) -> Request:
    """Return a request. Items of type 0 are left out: they get no report.

    Args:
        most_items: how many of them are parsed.

    Raises:
        Refused: INNER_MALFORMED, also for a message id that is too long, MESSAGE_ID_MISSING, or REQUEST_LIMIT if there
            are so many items that not even the first ones are read.
    """
    message = wire.parse(
        PushNotificationRequest,
        inner,
        malformed=Failure.INNER_MALFORMED,
        most_fields=_TIMES_ANSWERED * most_items + wire.PLAIN_FIELDS,
        too_many=Failure.REQUEST_LIMIT,
    )
    if not message.message_id:
        raise Refused(Failure.MESSAGE_ID_MISSING)
    if len(message.message_id) > ECHO_BYTES:
        raise Refused(Failure.INNER_MALFORMED)
    return Request(
        message.message_id,
        tuple(
            Item(
                key_hash=item.public_key,
                installation_id=item.installation_id,
                access_token=item.access_token,
                type=item.type,
                chat_id=item.chat_id,
                author=item.author,
                message=item.message,
            )
            for item in message.requests[:most_items]
            if item.type != PushNotification.UNKNOWN_PUSH_NOTIFICATION_TYPE
        ),
        too_many=len(message.requests) > most_items,
    )


def decide(item: Item, device: Preferences | None, *, most_bytes: int) -> Failure | Filtered | None:
    """Return why one notification is refused, or kept back; None if it is to be sent.

    Args:
        device: the registered device that it names, None if there is none.
        most_bytes: of a chat id or an author.
    """
    if device is None or device.token_died:
        return Failure.NOT_REGISTERED
    if not device.token_fits:
        return Failure.WRONG_TOKEN
    if item.type not in set(NotificationType):
        return Failure.NOTIFICATION_TYPE_UNKNOWN
    if max(len(item.chat_id), len(item.author)) > most_bytes:
        return Failure.NOTIFICATION_TOO_LARGE
    return filtered(NotificationType(item.type), device)


def filtered(kind: NotificationType, device: Preferences) -> Filtered | None:
    """Return the first rule that keeps a notification back, None if it is to be sent."""
    message, mention = kind is NotificationType.MESSAGE, kind is NotificationType.MENTION
    rules = (
        (not device.enabled, Filtered.DISABLED),
        (device.author_blocked, Filtered.BLOCKED_AUTHOR),
        (message and device.chat_blocked, Filtered.BLOCKED_CHAT),
        (message and device.chat_muted, Filtered.MUTED_CHAT),
        (mention and device.block_mentions, Filtered.MENTIONS_BLOCKED),
        (mention and not device.mention_allowed, Filtered.MENTION_NOT_ALLOWED),
    )
    return next((reason for applies, reason in rules if applies), None)


def delivery_key(message_id: bytes, item: Item) -> bytes:
    """Return the identity of a notification, 32 bytes: those that are equal in all of these parts are pushed once.

    The sender chooses the message id, so the content counts too.
    """
    parts = (
        message_id,
        item.key_hash,
        item.installation_id.encode(),
        item.type.to_bytes(4, "big", signed=True),
        item.chat_id,
        item.message,
    )
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()


def encode_response(request: Request, failures: Sequence[Failure | None]) -> bytes:
    """Return the PushNotificationResponse with a report for each item; a name that no user has is cut.

    Args:
        failures: the failure to report for each item, None for success.
    """
    reports = []
    for item, failure in zip(request.items, failures, strict=True):
        report = PushNotificationReport(
            success=failure is None,
            public_key=item.key_hash[:ECHO_BYTES],
            installation_id=item.installation_id[:ECHO_BYTES],
        )
        if failure is not None:
            report.error = failure.answer.value.report or PushNotificationReport.INTERNAL_ERROR
        reports.append(report)
    return PushNotificationResponse(message_id=request.message_id, reports=reports).SerializeToString()


def parse_response(inner: bytes) -> RequestResponse:
    """Return a server's answer. An error that the specification does not know counts as INTERNAL_ERROR.

    Raises:
        Refused: INNER_MALFORMED.
    """
    message = wire.decode(PushNotificationResponse, inner, Failure.INNER_MALFORMED)
    return RequestResponse(
        message.message_id,
        tuple(
            Report(
                report.public_key,
                report.installation_id,
                None if report.success else _ERRORS.get(report.error, Answer.INTERNAL_ERROR),
            )
            for report in message.reports
        ),
    )


_ERRORS = {answer.value.report: answer for answer in Answer if answer.value.report is not None}
