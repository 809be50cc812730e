"""The rules of push requests as tables: who is notified, and what is reported."""

import inspect
import re
from itertools import product

import pytest

from support.deciding import preferences
from wakupush.model.failures import Answer, Failure
from wakupush.model.notifications import NotificationType
from wakupush.pb.push_notification_pb2 import (
    PushNotification,
    PushNotificationReport,
    PushNotificationRequest,
    PushNotificationResponse,
)
from wakupush.protocol import request
from wakupush.protocol.errors import Refused
from wakupush.protocol.request import Filtered

TOKEN, INSTALLATION = "0fd8121c-34b8-4ceb-b88e-5acbf94501ad", "cf3695c5-ae8a-40d9-bf26-a554268f1475"
HASH = b"h" * 64
MESSAGE, MENTION, JOIN, CONTACT = NotificationType
CHAT, OTHER, AUTHOR = b"c" * 64, b"o" * 64, b"a" * 64


def item(kind=MESSAGE, **changes):
    fields = {
        "key_hash": HASH,
        "installation_id": INSTALLATION,
        "access_token": TOKEN,
        "type": int(kind),
        "chat_id": CHAT,
        "author": AUTHOR,
        "message": b"message",
    }
    return request.Item(**fields | changes)


def decide(requested_item, **device):
    """Return what becomes of an item for a device that lets everything through but for these fields."""
    fields = {"access_token": TOKEN, "allowed_mentions_chat_list": (CHAT,)} | device
    return request.decide(requested_item, preferences(requested_item, **fields), most_bytes=128)


SENT = None
#: What a device chose, and what becomes of a message, a mention, a request to join and a contact request.
CHOICES = {
    "nothing": ({}, SENT, SENT, SENT, SENT),
    "disabled": ({"enabled": False}, *[Filtered.DISABLED] * 4),
    "author blocked": ({"blocked_chat_list": (AUTHOR,)}, *[Filtered.BLOCKED_AUTHOR] * 4),
    "chat blocked": ({"blocked_chat_list": (CHAT,)}, Filtered.BLOCKED_CHAT, SENT, SENT, SENT),
    "chat muted": ({"muted_chat_list": (CHAT,)}, Filtered.MUTED_CHAT, SENT, SENT, SENT),
    "author muted": ({"muted_chat_list": (AUTHOR,)}, SENT, SENT, SENT, SENT),
    "others blocked and muted": ({"blocked_chat_list": (OTHER,), "muted_chat_list": (OTHER,)}, *[SENT] * 4),
    "mentions blocked": ({"block_mentions": True}, SENT, Filtered.MENTIONS_BLOCKED, SENT, SENT),
    "mentions nowhere": ({"allowed_mentions_chat_list": ()}, SENT, Filtered.MENTION_NOT_ALLOWED, SENT, SENT),
    "mentions elsewhere": ({"allowed_mentions_chat_list": (OTHER,)}, SENT, Filtered.MENTION_NOT_ALLOWED, SENT, SENT),
}


@pytest.mark.parametrize(
    ("choice", "kind", "decision"),
    [
        pytest.param(choice, kind, decision, id=f"{name}-{kind.name}")
        for name, (choice, *decisions) in CHOICES.items()
        for kind, decision in zip(NotificationType, decisions, strict=True)
    ],
)
def test_decide(choice, kind, decision):
    assert decide(item(kind), **choice) is decision


def test_every_reason_is_in_the_table():
    decisions = {decision for _, *row in CHOICES.values() for decision in row}
    assert decisions == {SENT, *Filtered}


#: In the order of the checks: changes to item and device, None for a device that is not there.
ORDER = [
    (Failure.NOT_REGISTERED, {}, {"token_died": True}),
    (Failure.WRONG_TOKEN, {"access_token": "x"}, {}),
    (Failure.NOTIFICATION_TYPE_UNKNOWN, {"type": 99}, {}),
    (Failure.NOTIFICATION_TOO_LARGE, {"chat_id": bytes(129)}, {}),
    (Filtered.DISABLED, {}, {"enabled": False}),
    (Filtered.BLOCKED_AUTHOR, {}, {"blocked_chat_list": (AUTHOR, CHAT)}),
    (Filtered.BLOCKED_CHAT, {}, {"blocked_chat_list": (CHAT,)}),
    (Filtered.MUTED_CHAT, {}, {"muted_chat_list": (CHAT,)}),
]


@pytest.mark.parametrize("at", range(len(ORDER)), ids=[decision.name for decision, _, _ in ORDER])
def test_the_first_rule_counts(at):
    item_fields, device_fields = {}, {}
    for _, item_changes, device_changes in reversed(ORDER[at:]):
        item_fields |= item_changes
        device_fields |= device_changes
    assert decide(item(**item_fields), **device_fields) is ORDER[at][0]
    assert request.decide(item(**item_fields), None, most_bytes=128) is Failure.NOT_REGISTERED


def test_every_failure_of_decide_is_in_the_order():
    named = set(re.findall(r"Failure\.(\w+)", inspect.getsource(request.decide)))
    assert named == {decision.name for decision, _, _ in ORDER if isinstance(decision, Failure)}


@pytest.mark.parametrize("token", ["", TOKEN.upper(), TOKEN[:-1], f"{TOKEN} ", "\0", "ü"])
def test_wrong_token(token):
    assert decide(item(access_token=token)) is Failure.WRONG_TOKEN


@pytest.mark.parametrize("name", ["chat_id", "author"])
def test_what_an_item_names_is_bounded(name):
    assert decide(item(**{name: bytes(129)})) is Failure.NOTIFICATION_TOO_LARGE
    for size in (0, 128):
        assert decide(item(**{name: bytes(size)})) is SENT


@pytest.mark.parametrize("number", [-(2**31), -1, 0, 5, 99, 2**31 - 1])
def test_unknown_type(number):
    assert decide(item(type=number)) is Failure.NOTIFICATION_TYPE_UNKNOWN


def push(number, **fields):
    return PushNotification(type=number, access_token=TOKEN, installation_id=INSTALLATION, public_key=HASH, **fields)


def test_items_of_type_0_are_passed_over():
    message = PushNotificationRequest(requests=map(push, [0, 1, 0, 99, -1]), message_id=b"i")
    push_request = request.parse_request(message.SerializeToString(), most_items=100)
    assert push_request.message_id == b"i"
    assert [entry.type for entry in push_request.items] == [1, 99, -1]


@pytest.mark.parametrize(
    ("inner", "failure"),
    [
        (b"", Failure.MESSAGE_ID_MISSING),
        (PushNotificationRequest(requests=[push(1)]).SerializeToString(), Failure.MESSAGE_ID_MISSING),
        (b"\xff", Failure.INNER_MALFORMED),
        (b"\x0a\x03\x0a\x01\xff\x12\x01i", Failure.INNER_MALFORMED),
        (
            PushNotificationRequest(requests=[push(1)], message_id=bytes(129)).SerializeToString(),
            Failure.INNER_MALFORMED,
        ),
    ],
    ids=["empty", "no_message_id", "no_protobuf", "text_no_utf8", "long_message_id"],
)
def test_request_without_answer(inner, failure):
    with pytest.raises(Refused) as refused:
        request.parse_request(inner, most_items=100)
    assert refused.value.failure is failure
    assert failure.answer is Answer.SILENCE


@pytest.mark.parametrize("failure", [None, *Failure], ids=lambda failure: getattr(failure, "label", "success"))
def test_report(failure):
    push_request = request.Request(b"id", (item(), item(key_hash=b"x" * 64)))
    response = PushNotificationResponse.FromString(request.encode_response(push_request, [failure, None]))
    errors = {
        Failure.WRONG_TOKEN: PushNotificationReport.WRONG_TOKEN,
        Failure.NOT_REGISTERED: PushNotificationReport.NOT_REGISTERED,
        Failure.TOKEN_UNREGISTERED: PushNotificationReport.NOT_REGISTERED,
        Failure.DEVICE_GONE: PushNotificationReport.NOT_REGISTERED,
        None: PushNotificationReport.UNKNOWN_ERROR_TYPE,
    }
    whom = {"public_key": HASH, "installation_id": INSTALLATION}
    assert list(response.reports) == [
        PushNotificationReport(
            success=failure is None, error=errors.get(failure, PushNotificationReport.INTERNAL_ERROR), **whom
        ),
        PushNotificationReport(success=True, **whom | {"public_key": b"x" * 64}),
    ]
    assert response.message_id == b"id"


def test_an_answer_repeats_a_bounded_part_of_a_request():
    """What no client sends: the answer to it would have no bound but that of the request."""
    message = PushNotificationRequest(
        requests=[PushNotification(type=1, public_key=bytes(99_999), installation_id="i" * 99_999)] * 200,
        message_id=bytes(128),
    )
    push_request = request.parse_request(message.SerializeToString(), most_items=200)
    answer = request.encode_response(push_request, [Failure.NOT_REGISTERED] * 200)
    assert len(answer) < 200 * 300
    response = PushNotificationResponse.FromString(answer)
    assert response.message_id == bytes(128)
    assert {(report.public_key, report.installation_id) for report in response.reports} == {(bytes(128), "i" * 128)}


def test_a_report_for_every_item():
    with pytest.raises(ValueError, match="zip"):
        request.encode_response(request.Request(b"id", (item(),)), [])


def test_delivery_key_tells_notifications_apart():
    changes = [
        {},
        {"key_hash": OTHER},
        {"installation_id": TOKEN},
        {"type": 2},
        {"chat_id": OTHER},
        {"message": b""},
        {"chat_id": CHAT + b"m", "message": b"essage"},  # the same bytes in a row
        {"chat_id": CHAT[:-1], "message": b"c" + b"message"},
    ]
    keys = [request.delivery_key(message_id, item(**change)) for message_id, change in product((b"1", b"2"), changes)]
    assert len(set(keys)) == len(keys)


def test_delivery_key_counts_neither_author_nor_token():
    assert request.delivery_key(b"1", item(author=OTHER, access_token="x")) == request.delivery_key(b"1", item())
