"""gorush's `data` in the built-in profiles, and what happens where it is too large."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import profiles
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.protocol.notification import DATA_KEYS, MOST_DATA_BYTES, PROFILES
from wakupush.runtime.profiles import BUILT_IN, DataKey

IOS, ANDROID = Platform.IOS, Platform.ANDROID
HASH, CHAT = b"\x0a" * 64, b"\x0b" * 64
HEX_HASH, HEX_CHAT = "0x" + "0a" * 64, "0x" + "0b" * 64
INSTALLATION = "cf3695c5-ae8a-40d9-bf26-a554268f1475"


def data(profile, message, chat_id=CHAT, **which):
    return profiles.data(
        profile, key_hash=HASH, installation_id=INSTALLATION, chat_id=chat_id, message=message, **which
    )


STATUS = {"encryptedMessage": "0x0102", "chatId": HEX_CHAT, "publicKey": HEX_HASH}
SPEC = {"chat_id": HEX_CHAT, "message": "0x0102", "installation_ids": [INSTALLATION]}
LINK = {"deepLink": "status-app://chats"}
#: The data of a message: for Firebase, and what is added for iOS.
DATA = {"spec": (SPEC, {}), "status": (STATUS, LINK), "status-2024": (STATUS, {}), "both": (STATUS | SPEC, LINK)}
OF_ALL = [
    pytest.param(profile, platform, android | (ios if platform is IOS else {}), id=f"{profile}-{platform.label}")
    for profile, (android, ios) in DATA.items()
    for platform in Platform
]


def test_settings_know_what_is_built_in():
    assert PROFILES.keys() == DATA.keys() == set(BUILT_IN)
    assert set(DATA_KEYS) == set(get_args(DataKey))


@pytest.mark.parametrize(("profile", "platform", "whole"), OF_ALL)
def test_empty_values_are_0x(profile, platform, whole):
    chat_and_message = {"encryptedMessage", "chatId", "chat_id", "message"}
    assert data(profile, b"", b"", platform=platform) == {
        name: "0x" if name in chat_and_message else whole[name] for name in whole
    }


def largest_message(profile, platform):
    """Return how many bytes of message still fit."""
    names = len({"encryptedMessage", "message"} & DATA[profile][0].keys())
    return (MOST_DATA_BYTES - len(json.dumps(data(profile, b"", platform=platform)))) // (2 * names)


def test_a_deep_link_leaves_less_room_for_the_message():
    assert largest_message("status", IOS) < largest_message("status", ANDROID) == largest_message("status-2024", IOS)


@pytest.mark.parametrize(("profile", "platform", "whole"), OF_ALL)
def test_the_message_is_left_out_where_it_is_too_large(profile, platform, whole):
    fits = b"x" * largest_message(profile, platform)
    whole_data = data(profile, fits, platform=platform)
    assert "0x" + fits.hex() in whole_data.values()
    assert len(json.dumps(whole_data)) <= MOST_DATA_BYTES
    short_data = data(profile, fits + b"x", platform=platform)
    assert short_data == data(profile, b"", platform=platform), "the chat and whom it is for are still told"
    assert short_data.keys() == whole.keys()


@pytest.mark.parametrize("profile", DATA)
def test_large_chat_id_is_left_to_the_platform(profile):
    chat_id = bytes(MOST_DATA_BYTES)
    whole = data(profile, b"x", chat_id)
    assert whole == data(profile, b"", chat_id)
    assert "0x" + chat_id.hex() in whole.values()


@given(
    st.sampled_from(list(DATA)),
    st.sampled_from(NotificationType),
    st.sampled_from(Platform),
    st.binary(max_size=64),
    st.integers(0, 4000),
)
def test_the_message_is_whole_or_left_out(profile, kind, platform, chat_id, size):
    whole = data(profile, b"x" * size, chat_id, kind=kind, platform=platform)
    assert len(json.dumps(whole)) <= MOST_DATA_BYTES
    assert {whole[name] for name in ("encryptedMessage", "message") if name in whole} <= {"0x", "0x" + "78" * size}
