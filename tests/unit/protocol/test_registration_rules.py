"""The rules of registrations as tables: what one must be, which fault counts, what is answered."""

import inspect
import re
import sys
import unicodedata
from dataclasses import replace

import pytest

from wakupush.model.failures import Answer, Failure
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Registration, Unregistration
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistration,
    PushNotificationRegistrationResponse,
)
from wakupush.protocol import registration
from wakupush.protocol.errors import Refused
from wakupush.protocol.grants import grant
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import Limits
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


def check(*, stored_version=5, limits=LIMITS, **changes):
    """Return what the checks make of a registration: a row or a failure."""
    try:
        return registration.check(
            message(**changes),
            client=CLIENT.public_key,
            server=SERVER.public_key,
            stored_version=stored_version,
            limits=limits,
        )
    except Refused as refused:
        return refused.failure


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
    parts = (registration.check, registration._name_faults, registration._access_faults, registration.device_faults)
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
    ("version", "stored_version", "is_accepted"),
    [(1, 0, True), (1, 1, False), (2, 1, True), (1, 2, False), (2**64 - 1, 2**64 - 2, True), (5, 2**64 - 1, False)],
)
@pytest.mark.parametrize("unregister", [False, True])
def test_version(version, stored_version, is_accepted, unregister):
    row = check(version=version, stored_version=stored_version, unregister=unregister)
    assert row.version == version if is_accepted else row is Failure.VERSION_OUTDATED


def test_unregistering_needs_no_more_than_a_version():
    expected = Unregistration(installation_id=INSTALLATION, version=6)
    assert check(unregister=True) == expected
    assert check(unregister=True, access_token="", grant=b"", device_token="", token_type=0, apn_topic="") == expected
    assert check(unregister=True, installation_id="") is Failure.INSTALLATION_ID_INVALID


@pytest.mark.parametrize("number", [0, 3, 99, -1, 2**31 - 1])
def test_unsupported_token_type(number):
    assert check(token_type=number) is Failure.TOKEN_TYPE_UNSUPPORTED


@pytest.mark.parametrize(("topic", "expected"), [("", ""), ("im.status.ethereum", "im.status.ethereum"), ("a b\0", "")])
def test_firebase_keeps_a_topic_that_may_name_an_app(topic, expected):
    assert check(token_type=TokenType.FIREBASE, apn_topic=topic).apn_topic == expected


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


@pytest.mark.parametrize(
    ("name", "most"), [("device_token", registration.APN_TOKEN_BYTES), ("apn_topic", registration.APN_TOPIC_BYTES)]
)
def test_what_becomes_a_header_is_bounded(name, most):
    roomy = replace(LIMITS, text_bytes=4096, registration_bytes=10_000)
    assert isinstance(check(limits=roomy, **{name: "x" * most}), Registration)
    assert check(limits=roomy, **{name: "x" * (most + 1)}) is Failure.REGISTRATION_TOO_LARGE
    of_firebase = check(limits=roomy, token_type=TokenType.FIREBASE, **{name: "x" * 4096})
    assert isinstance(of_firebase, Registration), "it becomes none"


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
