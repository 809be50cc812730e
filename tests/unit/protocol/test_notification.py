"""gorush's `data` in its dialects, and what happens where it is too large."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.model.notifications import NotificationType
from wakupush.protocol import notification
from wakupush.protocol.notification import MOST_DATA_BYTES, TEXTS

HASH, CHAT = b"\x0a" * 64, b"\x0b" * 64
HEX_HASH, HEX_CHAT = "0x" + "0a" * 64, "0x" + "0b" * 64
INSTALLATION = "cf3695c5-ae8a-40d9-bf26-a554268f1475"


def data(dialect, message, chat_id=CHAT):
    return notification.data(dialect, key_hash=HASH, installation_id=INSTALLATION, chat_id=chat_id, message=message)


STATUS = {"encryptedMessage": "0x0102", "chatId": HEX_CHAT, "publicKey": HEX_HASH}
SPEC = {"chat_id": HEX_CHAT, "message": "0x0102", "installation_ids": [INSTALLATION]}
DIALECTS = {"status": STATUS, "spec": SPEC, "both": STATUS | SPEC}


@pytest.mark.parametrize(("dialect", "whole"), DIALECTS.items())
def test_dialect(dialect, whole):
    assert data(dialect, b"\1\2") == whole


@pytest.mark.parametrize(("dialect", "whole"), DIALECTS.items())
def test_empty_values_are_0x(dialect, whole):
    chat_and_message = {"encryptedMessage", "chatId", "chat_id", "message"}
    assert data(dialect, b"", b"") == {name: "0x" if name in chat_and_message else whole[name] for name in whole}


def largest_message(dialect):
    """Return how many bytes of message still fit."""
    names = len({"encryptedMessage", "message"} & DIALECTS[dialect].keys())
    return (MOST_DATA_BYTES - len(json.dumps(data(dialect, b"")))) // (2 * names)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_message_is_left_out_where_it_is_too_large(dialect):
    fits = b"x" * largest_message(dialect)
    kept = data(dialect, fits)
    assert "0x" + fits.hex() in kept.values()
    assert len(json.dumps(kept)) <= MOST_DATA_BYTES
    assert data(dialect, fits + b"x") == data(dialect, b""), "the chat and whom it is for are still told"
    assert data(dialect, fits + b"x").keys() == DIALECTS[dialect].keys()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_chat_id_that_is_too_large_is_left_to_the_platform(dialect):
    chat_id = bytes(MOST_DATA_BYTES)
    whole = data(dialect, b"x", chat_id)
    assert whole == data(dialect, b"", chat_id)
    assert "0x" + chat_id.hex() in whole.values()


@given(st.sampled_from(list(DIALECTS)), st.binary(max_size=64), st.integers(0, 4000))
def test_the_message_is_whole_or_left_out(dialect, chat_id, size):
    whole = data(dialect, b"x" * size, chat_id)
    assert len(json.dumps(whole)) <= MOST_DATA_BYTES
    assert {whole[name] for name in ("encryptedMessage", "message") if name in whole} <= {"0x", "0x" + "78" * size}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_data_leaves_room_for_the_rest_of_4_kilobytes(dialect):
    most = data(dialect, b"x" * largest_message(dialect))
    assert len(json.dumps({"data": most, "message": max(TEXTS.values(), key=len), "topic": "x" * 255})) < 4096


def test_every_type_has_its_text():
    assert TEXTS == {
        NotificationType.MESSAGE: "You have a new message",
        NotificationType.MENTION: "Someone mentioned you",
        NotificationType.REQUEST_TO_JOIN_COMMUNITY: "Someone requested to join a community you are an admin of",
        NotificationType.CONTACT_REQUEST: "Someone sent you a contact request",
    }
