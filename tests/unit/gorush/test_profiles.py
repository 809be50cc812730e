"""What gorush gets for the fields of an operator's profile, and what reaches the phone of it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from pydantic import ValidationError

from support import deciding, profiles, rows
from support.profiles import CHAT, EVERY, HASH
from wakupush.devnet.gorush import platforms
from wakupush.devnet.gorush.gorush import payload_bytes
from wakupush.gorush.profiles import _profile
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation
from wakupush.protocol.notification import MOST_PAYLOAD_BYTES, PROFILES, notification
from wakupush.runtime.profiles import MOST_TEXT_BYTES, DataKey, ProfileTable

IOS, ANDROID = Platform
MESSAGE, MENTION, *_ = NotificationType
NOW, LIFE = 1_800_000_000.0, 86_400
BASE = {"text": "New", "expiration": False, "data": ["message"]}


def posted(table, platform, kind=MESSAGE, **changes):
    """Return what gorush gets for a profile, or for the fields of one that differ from `BASE`."""
    profile = _profile(ProfileTable(**BASE | table)) if isinstance(table, dict) else table
    return profiles.posted(profile, platform, kind, now=NOW, **changes)


def fields(table, platform, kind=MESSAGE, **changes):
    whole = posted(table, platform, kind, **changes)
    return {name: value for name, value in whole.items() if name not in ALWAYS}


ALWAYS = {"notif_id", "tokens", "platform", "topic", "collapse_id", "data"}
HIGH = {"message": "New", "priority": "high"}
KEYS = {"text": "", "text_key": "K", "text_args": ["A"], "title_key": "TK", "title_args": ["TA"]}


@pytest.mark.parametrize(
    ("table", "ios", "android"),
    [
        ({}, HIGH, HIGH),
        ({"title": "T"}, HIGH | {"title": "T"}, HIGH | {"title": "T"}),
        ({"priority": "normal"}, HIGH | {"priority": "normal"}, HIGH | {"priority": "normal"}),
        ({"sound": "s"}, HIGH | {"sound": "s"}, HIGH | {"android": {"notification": {"sound": "s"}}}),
        ({"badge": True}, HIGH | {"badge": 1}, HIGH),
        ({"mutable_content": True}, HIGH | {"mutable_content": True}, HIGH),
        ({"content_available": True}, HIGH | {"content_available": True}, HIGH),
        ({"category": "c"}, HIGH | {"category": "c"}, HIGH),
        ({"channel": "c"}, HIGH, HIGH | {"android": {"notification": {"channel_id": "c"}}}),
        ({"expiration": True}, HIGH | {"expiration": int(NOW) + LIFE}, HIGH | {"android": {"ttl": "86400s"}}),
        (
            KEYS,
            {
                "priority": "high",
                "alert": {"loc-key": "K", "loc-args": ["A"], "title-loc-key": "TK", "title-loc-args": ["TA"]},
            },
            {
                "priority": "high",
                "android": {
                    "notification": {
                        "body_loc_key": "K",
                        "body_loc_args": ["A"],
                        "title_loc_key": "TK",
                        "title_loc_args": ["TA"],
                    }
                },
            },
        ),
        (
            {"title_key": "TK"},
            {"priority": "high", "alert": {"body": "New", "title-loc-key": "TK"}},
            HIGH | {"android": {"notification": {"title_loc_key": "TK"}}},
        ),
        (
            {"data_only": ["ios", "android"], "sound": "s", "title": "T", "badge": True, "channel": "c"},
            {"content_available": True, "push_type": "background", "priority": "normal"},
            {"priority": "high"},
        ),
        ({"data_only": ["android"]}, HIGH, {"priority": "high"}),
    ],
)
def test_fields(table, ios, android):
    assert fields(table, IOS) == ios
    assert fields(table, ANDROID) == android


def test_every_field_reaches_the_phone():
    thread = deciding.IDENTITY.thread_id(Installation(HASH, b"i" * 16), CHAT)
    data = {
        "message": "0x01",
        "chat_id": "0x" + CHAT.hex(),
        "installation_ids": [deciding.PHONE],
        "encryptedMessage": "0x01",
        "chatId": "0x" + CHAT.hex(),
        "publicKey": "0x" + HASH.hex(),
        "deepLink": "mine://chats",
    }
    headers, payload = platforms.apple(posted(EVERY, IOS))
    assert headers == {
        "apns-topic": "app",
        "apns-collapse-id": "00" * 16,
        "apns-priority": "5",
        "apns-expiration": str(int(NOW) + LIFE),
        "apns-push-type": "alert",
    }
    aps = {
        "alert": {"title": "Mine", "body": "New"},
        "sound": "ping",
        "badge": 1,
        "mutable-content": 1,
        "content-available": 1,
        "category": "chat",
        "thread-id": thread,
    }
    assert payload == {"aps": aps} | data
    assert platforms.google(posted(EVERY, ANDROID)) == {
        "data": data | {"installation_ids": f'["{deciding.PHONE}"]'},
        "notification": {"title": "Mine", "body": "New"},
        "android": {
            "ttl": "86400s",
            "priority": "normal",
            "notification": {"channel_id": "chats", "sound": "ping"},
        },
    }


def test_a_type_has_its_own_content():
    table = {"sound": "s", "mention": {"text": "You were mentioned", "sound": ""}}
    assert fields(table, IOS, MENTION) == {"message": "You were mentioned", "priority": "high"}
    assert fields(table, IOS) == HIGH | {"sound": "s"}


def test_thread_ids_name_a_chat_on_one_device_only():
    other = b"\x0c" * 64
    same, again, of_chat, of_user = (
        posted({"thread_id": True}, IOS, **changes)["thread-id"]
        for changes in ({}, {"message": b"\2"}, {"chat_id": other}, {"key_hash": other})
    )
    assert same == again
    assert len({same, of_chat, of_user}) == 3
    assert CHAT.hex()[:16] not in same
    profile = replace(PROFILES["spec"], data_keys=())
    assert "thread-id" not in posted(profile, IOS)


@pytest.mark.parametrize(
    ("expires_at", "ttl"), [(NOW - 5, "0s"), (NOW + 59.9, "59s"), (NOW + 40 * LIFE, "2419200s"), (NOW, "0s")]
)
def test_a_time_to_live_is_what_firebase_takes(expires_at, ttl):
    assert posted({"expiration": True}, ANDROID, expires_at=expires_at)["android"] == {"ttl": ttl}


def test_nothing_of_a_notification_shows_in_its_repr():
    profile = _profile(ProfileTable(**BASE | EVERY))
    delivery = rows.delivery(1, chat_id=b"planted", message=b"planted")
    target = replace(deciding.target(), device_token="planted")
    text = repr(notification(profile, delivery, target, deciding.IDENTITY, NOW))
    assert "planted" not in text
    assert b"planted".hex() not in text


# The payload.


text = st.builds(str.__mul__, st.text('x<&"\\\u2028\x00é日😀', min_size=1, max_size=3), st.integers(0, 500))
name = st.text("abc<&é", max_size=20)
contents = st.fixed_dictionaries(
    {},
    optional={
        "text": text.filter(bool),
        "title": text,
        "sound": name,
        "category": name,
        "channel": name,
        "deep_link": st.just("") | st.text("a&<=/", max_size=100).map("mine:/{}".format),
        "priority": st.sampled_from(["high", "normal"]),
        "data_only": st.lists(st.sampled_from(["ios", "android"])),
        **dict.fromkeys(("badge", "mutable_content", "content_available", "thread_id", "expiration"), st.booleans()),
    },
) | st.fixed_dictionaries({"text_key": name.filter(bool)}, optional={"text_args": st.lists(text, max_size=4)})
tables = st.fixed_dictionaries(
    {"text": st.just("New"), "data": st.lists(st.sampled_from(DataKey.__args__), unique=True)},
    optional={"mention": contents, "title": text, "thread_id": st.booleans()},
)


def accepted(table):
    try:
        return _profile(ProfileTable(**table))
    except ValidationError:
        reject()


@given(tables.map(accepted), st.sampled_from([MESSAGE, MENTION]), st.sampled_from(Platform), st.integers(-2, 2))
def test_no_push_is_too_large_for_its_platform(profile, kind, platform, difference):
    """Not even with the largest message that is not left out."""
    copies = len({"message", "encryptedMessage"} & set(profile.data_keys)) or 1
    rest = len(json.dumps(posted(profile, platform, kind, message=b"")["data"], ensure_ascii=False).encode())
    size = (profile.contents[kind, platform].room - rest) // (2 * copies) + difference
    whole = posted(profile, platform, kind, message=b"x" * size)
    assert payload_bytes(whole) <= MOST_PAYLOAD_BYTES
    messages = {whole["data"][key] for key in ("message", "encryptedMessage") if key in whole["data"]}
    assert messages <= {"0x", "0x" + "78" * size}


@pytest.mark.parametrize("platform", Platform)
def test_a_long_text_leaves_less_room_for_the_message(platform):
    def largest(**table):
        return max(
            size for size in range(2000) if posted(table, platform, message=b"x" * size)["data"]["message"] != "0x"
        )

    assert largest() > 1700
    assert 0 < largest(text="x" * 1900) < 1100


@pytest.mark.parametrize("filler", ["x", "<", "é"])
def test_the_longest_texts_leave_room_for_all_data(filler):
    """The settings refuse longer ones, so that no platform refuses a notification for its size."""
    table = {"text": "x", "data": list(DataKey.__args__), "deep_link": "mine://&", "thread_id": True}
    refused = []
    for size in range(MOST_TEXT_BYTES, 0, -1):
        try:
            profile = _profile(ProfileTable(**table, title=filler * size))
            break
        except ValidationError:
            refused.append(size)
    assert refused
    for platform in Platform:
        assert payload_bytes(posted(profile, platform, message=b"")) <= MOST_PAYLOAD_BYTES
