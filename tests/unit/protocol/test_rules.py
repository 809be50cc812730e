"""The rules as tables: what a registration must be, what a query reveals, who is notified."""

import inspect
import re
import sys
import unicodedata
from itertools import product

import pytest

from support.wanting import preferences
from wakupush.model.failures import Answer, Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import QueriedDevice, Registration, Unregistration
from wakupush.pb.push_notification_pb2 import (
    PushNotification,
    PushNotificationQuery,
    PushNotificationQueryInfo,
    PushNotificationQueryResponse,
    PushNotificationRegistration,
    PushNotificationRegistrationResponse,
    PushNotificationReport,
    PushNotificationRequest,
    PushNotificationResponse,
)
from wakupush.protocol import query, registration, request
from wakupush.protocol.errors import Refused
from wakupush.protocol.grants import grant
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import Limits
from wakupush.protocol.request import Admitted, Filtered
from wakupush.protocol.uuids import is_uuid

CLIENT, SERVER = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)
TOKEN, INSTALLATION = "0fd8121c-34b8-4ceb-b88e-5acbf94501ad", "cf3695c5-ae8a-40d9-bf26-a554268f1475"
LIMITS = Limits(list_items=3, list_item_bytes=64, text_bytes=100, registration_bytes=1000)
LISTS = ("allowed_key_list", "blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list")


def message(**changes):
    """Return a good registration for an Apple device, with some fields changed and a grant for its access token."""
    fields = {
        "token_type": TokenType.APN,
        "device_token": "device-token",
        "installation_id": INSTALLATION,
        "access_token": TOKEN,
        "enabled": True,
        "version": 6,
        "apn_topic": "im.status.ethereum",
    } | changes
    fields.setdefault("grant", grant(CLIENT, SERVER.public_key, fields["access_token"]))
    return PushNotificationRegistration(**fields)


def check(*, stored_version=5, **changes):
    """Return what the checks make of a registration: a row or a failure."""
    try:
        return registration.check(
            message(**changes),
            client=CLIENT.public_key,
            server=SERVER.public_key,
            stored_version=stored_version,
            limits=LIMITS,
        )
    except Refused as refused:
        return refused.failure


# Registrations.

#: In the order of the checks.
FAULTS = [
    (Failure.VERSION_ZERO, {"version": 0}),
    (Failure.INSTALLATION_ID_INVALID, {"installation_id": "x"}),
    (Failure.VERSION_OUTDATED, {"stored_version": 6}),
    (Failure.ACCESS_TOKEN_INVALID, {"access_token": "x"}),
    (Failure.GRANT_INVALID, {"grant": b""}),
    (Failure.DEVICE_TOKEN_INVALID, {"device_token": ""}),
    (Failure.TOKEN_TYPE_UNSUPPORTED, {"token_type": 0}),
    (Failure.APN_TOPIC_INVALID, {"apn_topic": ""}),
    (Failure.REGISTRATION_TOO_LARGE, {"muted_chat_list": [b""] * 4}),
]


@pytest.mark.parametrize("at", range(len(FAULTS)), ids=[failure.label for failure, _ in FAULTS])
def test_the_first_fault_counts(at):
    failure, fault = FAULTS[at]
    assert check(**fault) is failure
    all_from_here = {name: value for _, changes in reversed(FAULTS[at:]) for name, value in changes.items()}
    assert check(**all_from_here) is failure


def test_every_failure_of_the_checks_is_in_the_table():
    parts = (registration.check, registration._name_faults, registration._access_faults, registration._device_faults)
    source = "".join(map(inspect.getsource, parts))
    assert set(re.findall(r"Failure\.(\w+)", source)) == {failure.name for failure, _ in FAULTS}


def test_a_good_registration_is_taken_over():
    lists = {name: [name.encode(), b""] for name in LISTS}
    row = check(**lists, allow_from_contacts_only=True, block_mentions=True)
    assert row == Registration(
        installation_id=INSTALLATION,
        version=6,
        token_type=TokenType.APN,
        device_token="device-token",
        access_token=TOKEN,
        grant=grant(CLIENT, SERVER.public_key, TOKEN),
        enabled=True,
        apn_topic="im.status.ethereum",
        allow_from_contacts_only=True,
        block_mentions=True,
        **{name: tuple(items) for name, items in lists.items()},
    )


@pytest.mark.parametrize(
    ("version", "stored", "taken"),
    [(1, 0, True), (1, 1, False), (2, 1, True), (1, 2, False), (2**64 - 1, 2**64 - 2, True), (5, 2**64 - 1, False)],
)
@pytest.mark.parametrize("unregister", [False, True])
def test_version(version, stored, taken, unregister):
    row = check(version=version, stored_version=stored, unregister=unregister)
    assert row.version == version if taken else row is Failure.VERSION_OUTDATED


def test_unregistering_needs_no_more_than_a_version():
    wanted = Unregistration(installation_id=INSTALLATION, version=6)
    assert check(unregister=True) == wanted
    assert check(unregister=True, access_token="", grant=b"", device_token="", token_type=0, apn_topic="") == wanted
    assert check(unregister=True, installation_id="") is Failure.INSTALLATION_ID_INVALID


@pytest.mark.parametrize("number", [0, 3, 99, -1, 2**31 - 1])
def test_unsupported_token_type(number):
    assert check(token_type=number) is Failure.TOKEN_TYPE_UNSUPPORTED


def test_apn_topic_is_for_apple_alone():
    for topic in ("", "im.status.ethereum", "a b\0"):
        assert check(token_type=TokenType.FIREBASE, apn_topic=topic).apn_topic == ""


@pytest.mark.parametrize("topic", ["", " ", "a b", "a\r\nb", "a\n", "a\0", "a\x7f", "ü", "\u2028"])
def test_apn_topic_that_is_no_header(topic):
    assert check(apn_topic=topic) is Failure.APN_TOPIC_INVALID


SPACES_AND_CONTROLS = [
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if character.isspace() or unicodedata.category(character) == "Cc"
]


@pytest.mark.parametrize("bad", ["/", "?", "#", "%", "..", "%2e%2e", "../v1", *SPACES_AND_CONTROLS], ids=ascii)
def test_apn_token_that_leaves_its_path(bad):
    for token in (bad, f"a{bad}", f"{bad}a", f"a{bad}b"):
        assert check(device_token=token) is Failure.DEVICE_TOKEN_INVALID


@pytest.mark.parametrize("good", ["a" * 64, "0123456789abcdef", "a.b", "a-b_c", "a:b", "ü"])
def test_apn_token_that_stays(good):
    assert check(device_token=good).device_token == good


@pytest.mark.parametrize("good", ["dY2:APA91bF_x-y", "a/b?c#d%20 e", "..", "a\nb", "ü"])
def test_firebase_token_is_in_no_path(good):
    row = check(token_type=TokenType.FIREBASE, device_token=good)
    assert (row.token_type, row.device_token) == (TokenType.FIREBASE, good)


@pytest.mark.parametrize("token_type", TokenType)
@pytest.mark.parametrize(
    ("field", "text", "failure"),
    [
        ("installation_id", f"\0{INSTALLATION}\0", Failure.INSTALLATION_ID_INVALID),
        ("installation_id", "\0", Failure.INSTALLATION_ID_INVALID),
        ("access_token", f"{{{TOKEN}\0", Failure.ACCESS_TOKEN_INVALID),
        ("device_token", "a\0b", Failure.DEVICE_TOKEN_INVALID),
        ("device_token", "\0", Failure.DEVICE_TOKEN_INVALID),
    ],
)
def test_nul(token_type, field, text, failure):
    assert check(token_type=token_type, **{field: text}) is failure
    assert failure.answer is Answer.MALFORMED_MESSAGE


def test_nul_when_unregistering():
    assert check(unregister=True, installation_id=f"\0{INSTALLATION}\0") is Failure.INSTALLATION_ID_INVALID


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(("items", "fits"), [(3 * [64 * b"x"], True), (4 * [b""], False), ([65 * b"x"], False)])
def test_limits_of_lists(name, items, fits):
    row = check(**{name: items})
    assert getattr(row, name) == tuple(items) if fits else row is Failure.REGISTRATION_TOO_LARGE


@pytest.mark.parametrize("name", ["device_token", "apn_topic"])
def test_limits_of_texts(name):
    assert isinstance(check(**{name: "x" * 100}), Registration)
    assert check(**{name: "x" * 101}) is Failure.REGISTRATION_TOO_LARGE


def test_limit_of_a_registration_as_a_whole():
    """Each list and text is within its own limit, all together are not."""
    lists = {name: 3 * [64 * b"x"] for name in LISTS}
    assert isinstance(check(**lists), Registration)
    assert check(**lists, device_token=100 * "x") is Failure.REGISTRATION_TOO_LARGE


def test_limits_count_bytes():
    assert check(device_token="ü" * 51) is Failure.REGISTRATION_TOO_LARGE


#: How each failure is answered: the order of checks in docs/reference/wire.md has the errors.
ERRORS = {
    Failure.REGISTRATION_MALFORMED: "MALFORMED_MESSAGE",
    Failure.VERSION_ZERO: "MALFORMED_MESSAGE",
    Failure.INSTALLATION_ID_INVALID: "MALFORMED_MESSAGE",
    Failure.VERSION_OUTDATED: "VERSION_MISMATCH",
    Failure.ACCESS_TOKEN_INVALID: "MALFORMED_MESSAGE",
    Failure.GRANT_INVALID: "MALFORMED_MESSAGE",
    Failure.DEVICE_TOKEN_INVALID: "MALFORMED_MESSAGE",
    Failure.TOKEN_TYPE_UNSUPPORTED: "UNSUPPORTED_TOKEN_TYPE",
    Failure.APN_TOPIC_INVALID: "MALFORMED_MESSAGE",
    Failure.REGISTRATION_TOO_LARGE: "MALFORMED_MESSAGE",
    Failure.INSTALLATION_LIMIT: "INTERNAL_ERROR",
    Failure.REGISTRATION_RATE_LIMIT: "INTERNAL_ERROR",
}


@pytest.mark.parametrize(("failure", "error"), ERRORS.items(), ids=lambda value: getattr(value, "label", None))
def test_answer_to_a_refused_registration(failure, error):
    response = PushNotificationRegistrationResponse.FromString(registration.encode_response(b"id", failure))
    assert (response.success, response.request_id) == (False, b"id")
    assert PushNotificationRegistrationResponse.ErrorType.Name(response.error) == error


def test_answer_to_a_good_registration():
    response = PushNotificationRegistrationResponse.FromString(registration.encode_response(b"id", None))
    assert response == PushNotificationRegistrationResponse(success=True, request_id=b"id")


@pytest.mark.parametrize(
    "failure", [failure for failure in Failure if failure.answer is Answer.SILENCE], ids=lambda failure: failure.label
)
def test_silence_cannot_be_answered(failure):
    with pytest.raises(ValueError, match="is not answered"):
        registration.encode_response(b"id", failure)


# uuids.

UUID, PLAIN = "f47ac10b-58cc-0372-8567-0e02b2c3d479", "f47ac10b58cc037285670e02b2c3d479"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (UUID, True),
        (UUID.upper(), True),
        (PLAIN, True),
        (PLAIN.upper(), True),
        (f"urn:uuid:{UUID}", True),
        (f"URN:UUID:{UUID}", True),
        (f"{{{UUID}}}", True),
        (f"({UUID})", True),
        (f"x{UUID}\n", True),
        ("00000000-0000-0000-0000-000000000000", True),
        ("", False),
        (f" {UUID}", False),
        (f"{UUID} ", False),
        (f"{UUID}\n", False),
        (f"ü{UUID}", False),
        (f"ü{UUID}ü", False),
        (f"{{{PLAIN}}}", False),
        (f"urn:uuid:{PLAIN}", False),
        (f"urn:oid:x{UUID}", False),
        (f"urn:uuid:{{{UUID}}}", False),
        (UUID.replace("-", "_"), False),
        ("f47a-c10b-58cc-0372-85670e02b2c3d479", False),
        (PLAIN[:-1], False),
        (PLAIN[:-1] + "g", False),
        (UUID[:-1] + "g", False),
        (UUID[:-1] + "٣", False),
        (PLAIN[:-1] + "\n", False),
    ],
    ids=ascii,
)
def test_is_uuid(text, is_one):
    assert is_uuid(text) is is_one


# Queries.

HASH = b"h" * 64


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([HASH], (HASH,)),
        ([HASH, HASH], (HASH,)),
        ([b"i" * 64, HASH, b"i" * 64], (b"i" * 64, HASH)),
        ([b"", b"x" * 63, HASH, b"x" * 65], (HASH,)),
        ([], Failure.QUERY_WITHOUT_KEYS),
        ([b""], Failure.QUERY_WITHOUT_KEYS),
        ([b"x" * 65, b"x" * 10], Failure.QUERY_WITHOUT_KEYS),
        ([HASH] * 5, Failure.QUERY_LIMIT),
        ([b""] * 5, Failure.QUERY_LIMIT),
    ],
)
def test_parse_query(keys, wanted):
    try:
        found = query.parse_query(PushNotificationQuery(public_keys=keys).SerializeToString(), most_keys=4)
    except Refused as refused:
        found = refused.failure
    assert found == wanted


def device(*, contacts_only, contacts):
    return QueriedDevice(
        key_hash=HASH,
        installation_id=INSTALLATION,
        version=7,
        access_token=TOKEN,
        grant=b"grant",
        allow_from_contacts_only=contacts_only,
        allowed_key_list=contacts,
    )


@pytest.mark.parametrize(
    ("contacts_only", "contacts", "revealed"),
    [
        (False, (), {"access_token": TOKEN}),
        (False, (b"item",), {"access_token": TOKEN}),
        (True, (b"item",), {"allowed_key_list": [b"item"]}),
        (True, (), {}),
    ],
)
def test_what_a_query_reveals(contacts_only, contacts, revealed):
    known = device(contacts_only=contacts_only, contacts=contacts)
    always = {"public_key": HASH, "installation_id": INSTALLATION, "grant": b"grant", "version": 7}
    info = PushNotificationQueryInfo(**always, **revealed)
    assert query.reveal(known) == info
    response = PushNotificationQueryResponse.FromString(query.encode_response(b"id", [known, known]))
    assert response == PushNotificationQueryResponse(info=[info, info], message_id=b"id", success=True)


def test_without_information_there_is_no_answer():
    with pytest.raises(Refused) as refused:
        query.encode_response(b"id", [])
    assert refused.value.failure is Failure.NOTHING_KNOWN
    assert refused.value.failure.answer is Answer.SILENCE


# Push requests.

MESSAGE, MENTION, JOIN = NotificationType
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


def decide(asked, **device):
    """Return what becomes of an item for a device that lets everything through but for these fields."""
    fields = {"access_token": TOKEN, "allowed_mentions_chat_list": (CHAT,)} | device
    return request.decide(asked, preferences(asked, **fields), most_bytes=128)


SENT = Admitted.ADMITTED
#: What a device chose, and what becomes of a message, a mention and a request to join.
CHOICES = {
    "nothing": ({}, SENT, SENT, SENT),
    "disabled": ({"enabled": False}, *[Filtered.DISABLED] * 3),
    "author blocked": ({"blocked_chat_list": (AUTHOR,)}, *[Filtered.BLOCKED_AUTHOR] * 3),
    "chat blocked": ({"blocked_chat_list": (CHAT,)}, Filtered.BLOCKED_CHAT, SENT, SENT),
    "chat muted": ({"muted_chat_list": (CHAT,)}, Filtered.MUTED_CHAT, SENT, SENT),
    "author muted": ({"muted_chat_list": (AUTHOR,)}, SENT, SENT, SENT),
    "others blocked and muted": ({"blocked_chat_list": (OTHER,), "muted_chat_list": (OTHER,)}, SENT, SENT, SENT),
    "mentions blocked": ({"block_mentions": True}, SENT, Filtered.MENTIONS_BLOCKED, SENT),
    "mentions nowhere": ({"allowed_mentions_chat_list": ()}, SENT, Filtered.MENTION_NOT_ALLOWED, SENT),
    "mentions elsewhere": ({"allowed_mentions_chat_list": (OTHER,)}, SENT, Filtered.MENTION_NOT_ALLOWED, SENT),
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
    asked, chosen = {}, {}
    for _, item_changes, device_changes in reversed(ORDER[at:]):
        asked |= item_changes
        chosen |= device_changes
    assert decide(item(**asked), **chosen) is ORDER[at][0]
    assert request.decide(item(**asked), None, most_bytes=128) is Failure.NOT_REGISTERED


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


@pytest.mark.parametrize("number", [-(2**31), -1, 0, 4, 99, 2**31 - 1])
def test_unknown_type(number):
    assert decide(item(type=number)) is Failure.NOTIFICATION_TYPE_UNKNOWN


def push(number, **fields):
    return PushNotification(type=number, access_token=TOKEN, installation_id=INSTALLATION, public_key=HASH, **fields)


def test_items_of_type_0_are_passed_over():
    sent = PushNotificationRequest(requests=map(push, [0, 1, 0, 99, -1]), message_id=b"i")
    asked = request.parse_request(sent.SerializeToString(), most_items=100)
    assert asked.message_id == b"i"
    assert [entry.type for entry in asked.items] == [1, 99, -1]


@pytest.mark.parametrize(
    ("inner", "failure"),
    [
        (b"", Failure.MESSAGE_ID_MISSING),
        (PushNotificationRequest(requests=[push(1)]).SerializeToString(), Failure.MESSAGE_ID_MISSING),
        (b"\xff", Failure.INNER_MALFORMED),
        (b"\x0a\x03\x0a\x01\xff\x12\x01i", Failure.INNER_MALFORMED),
    ],
    ids=["empty", "no_message_id", "no_protobuf", "text_no_utf8"],
)
def test_request_without_answer(inner, failure):
    with pytest.raises(Refused) as refused:
        request.parse_request(inner, most_items=100)
    assert refused.value.failure is failure
    assert failure.answer is Answer.SILENCE


@pytest.mark.parametrize("failure", [None, *Failure], ids=lambda failure: getattr(failure, "label", "success"))
def test_report(failure):
    asked = request.Request(b"id", (item(), item(key_hash=b"x" * 64)))
    response = PushNotificationResponse.FromString(request.encode_response(asked, [failure, None]))
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
