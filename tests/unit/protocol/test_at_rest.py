"""What the database holds opens in its place alone, and tells nothing but equality within one installation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.deciding import IDENTITY, NOW, PHONE, TOKEN
from wakupush.model.platforms import Platform, TokenType
from wakupush.model.registrations import Installation, Registration
from wakupush.protocol.at_rest import KEYED_COLUMNS, AtRest
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.sealing import UnsealableError

AT_REST, OTHERS = IDENTITY.at_rest, Identity.of(PrivateKey(b"\7" * 32)).at_rest
HERE = Installation(b"k" * 64, b"i" * 16)
ELSEWHERE = [replace(HERE, key_hash=b"x" * 64), replace(HERE, installation_hash=b"x" * 16)]
REGISTRATION = Registration(
    installation_id=PHONE,
    version=7,
    token_type=TokenType.APN,
    device_token="device token",
    access_token=TOKEN,
    grant=b"g" * 65,
    enabled=True,
    apn_topic="app",
    allow_from_contacts_only=True,
    block_mentions=False,
    allowed_key_list=(b"key", b""),
    blocked_chat_list=(b"b", b"a", b"b"),
    muted_chat_list=(),
    allowed_mentions_chat_list=(b"a",),
)
SEALED = AT_REST.columns(HERE, REGISTRATION)


def test_what_is_sealed_opens_in_its_place():
    device = AT_REST.open_device(HERE, 7, SEALED["sealed_device"])
    assert (device.installation_id, device.device_token, device.access_token) == (PHONE, "device token", TOKEN)
    assert (device.grant, device.apn_topic) == (b"g" * 65, "app")
    assert AT_REST.open_allowed_key_list(HERE, 7, SEALED["sealed_allowed_key_list"]) == (b"key", b"")
    target = AT_REST.target(HERE, 7, SEALED["sealed_device"], 1, suspected=True, proven=True)
    assert (target.version, target.platform, target.suspected, target.proven) == (7, Platform.IOS, True, True)


@pytest.mark.parametrize(
    ("at_rest", "place", "version"),
    [(OTHERS, HERE, 7), *((AT_REST, place, 7) for place in ELSEWHERE), (AT_REST, HERE, 8)],
    ids=["another server", "another user", "another installation", "another version"],
)
def test_what_is_sealed_opens_nowhere_else(at_rest, place, version):
    with pytest.raises(UnsealableError):
        at_rest.open_device(place, version, SEALED["sealed_device"])
    with pytest.raises(UnsealableError):
        at_rest.open_allowed_key_list(place, version, SEALED["sealed_allowed_key_list"])


def test_a_column_does_not_stand_for_another():
    with pytest.raises(UnsealableError):
        AT_REST.open_device(HERE, 7, SEALED["sealed_allowed_key_list"])
    with pytest.raises(UnsealableError):
        AT_REST.open_allowed_key_list(HERE, 7, SEALED["sealed_device"])


def test_content_opens_for_its_delivery():
    sealed = AT_REST.seal_content(b"1" * 32, HERE, b"chat", b"message", at=NOW)
    assert AT_REST.open_content(b"1" * 32, HERE, sealed) == (b"chat", b"message")
    places = [(b"2" * 32, HERE), *((b"1" * 32, place) for place in ELSEWHERE)]
    for at_rest, key, place in [(OTHERS, b"1" * 32, HERE), *((AT_REST, *place) for place in places)]:
        with pytest.raises(UnsealableError):
            at_rest.open_content(key, place, sealed)


def test_contents_have_a_key_of_their_month():
    derived = []
    at_rest = AtRest.of(lambda purpose: derived.append(purpose) or purpose.encode().ljust(32)[-32:])
    sealed = [at_rest.seal_content(b"1" * 32, HERE, b"c", b"m", at=NOW + 86_400 * 31 * month) for month in range(3)]
    assert derived[-3:] == [f"at rest: content of {number}" for number in (23640, 23641, 23642)]
    assert {at_rest.open_content(b"1" * 32, HERE, each) for each in sealed} == {(b"c", b"m")}
    # The month is part of the place: a content does not pass as one of another month.
    moved = sealed[0][:1] + sealed[1][1:3] + sealed[0][3:]
    with pytest.raises(UnsealableError):
        at_rest.open_content(b"1" * 32, HERE, moved)


def test_contents_of_old_code_open():
    for _ in range(1000):  # one in 256 begins like a new one
        sealed = AT_REST.seal_content_for_old_code(b"1" * 32, b"chat", b"message")
        assert AT_REST.open_content(b"1" * 32, HERE, sealed) == (b"chat", b"message")


def test_parts_open_in_their_row():
    place = (b"signer", b"h" * 32, 3)
    sealed = AT_REST.seal_part(*place, b"payload")
    assert AT_REST.open_part(*place, sealed) == b"payload"
    for other in ((b"other", b"h" * 32, 3), (b"signer", b"x" * 32, 3), (b"signer", b"h" * 32, 4)):
        with pytest.raises(UnsealableError):
            AT_REST.open_part(*other, sealed)
    for _ in range(1000):
        assert AT_REST.open_part(*place, AT_REST.seal_part_for_old_code(b"payload")) == b"payload"


@given(st.binary(max_size=100))
def test_whatever_is_read_opens_or_is_refused(content):
    with pytest.raises(UnsealableError):
        AT_REST.open_device(HERE, 7, content)


def test_the_same_is_never_sealed_to_the_same():
    again = AT_REST.columns(HERE, REGISTRATION)
    assert [name for name in SEALED if again[name] == SEALED[name]] == [
        "access_token_digest",
        "blocked_chat_digests",
        "muted_chat_digests",
        "allowed_mentions_chat_digests",
    ]


def test_digests_are_unique_and_ascending():
    digests = SEALED["blocked_chat_digests"]
    assert digests == b"".join(sorted(AT_REST.item_digest(HERE, item) for item in (b"a", b"b")))
    assert SEALED["allowed_mentions_chat_digests"] == AT_REST.item_digest(HERE, b"a")
    assert SEALED["muted_chat_digests"] is None
    assert AT_REST.columns(HERE, replace(REGISTRATION, allowed_key_list=()))["sealed_allowed_key_list"] is None


@given(st.binary(max_size=130), st.binary(max_size=130))
def test_digests_compare_within_one_installation(one, other):
    assert (AT_REST.item_digest(HERE, one) == AT_REST.item_digest(HERE, other)) == (one == other)
    for at_rest, place in ((OTHERS, HERE), *((AT_REST, place) for place in ELSEWHERE)):
        assert at_rest.item_digest(place, one) != AT_REST.item_digest(HERE, one)
    assert AT_REST.item_digest(HERE, one) != AT_REST.access_token(HERE, one.hex())


def test_device_digests_cover_platform_topic_and_token():
    digest = AT_REST.device(HERE, REGISTRATION)
    assert digest == AT_REST.device(HERE, replace(REGISTRATION, access_token="other", version=8))
    others = [{"device_token": "other"}, {"apn_topic": "other"}, {"token_type": TokenType.FIREBASE}]
    digests = {AT_REST.device(HERE, replace(REGISTRATION, **fields)) for fields in others}
    digests |= {AT_REST.device(place, REGISTRATION) for place in ELSEWHERE} | {OTHERS.device(HERE, REGISTRATION)}
    assert digest not in digests
    assert len(digests) == len(others) + len(ELSEWHERE) + 1


def test_an_address_has_the_digests_of_the_row():
    address = AT_REST.address(HERE, access_token=TOKEN, chat_id=b"a", author=b"b")
    assert address.access_token == SEALED["access_token_digest"]
    assert SEALED["blocked_chat_digests"] in {address.chat + address.author, address.author + address.chat}


def test_the_columns_are_those_of_the_table():
    assert tuple(SEALED) == KEYED_COLUMNS
