import pytest

from support.profiles import ADDED_KEYS
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform

TOKEN = "secret-token"


def notification(**changes):
    values = {
        "notif_id": "n1",
        "token": TOKEN,
        "platform": Platform.IOS,
        "message": "You have a new message",
        "data": {"chat_id": "0x01", "installation_ids": ["a", "b"]},
    }
    return Notification(**values | changes)


def test_notification_matches_the_specification():
    for each in (notification(collapse_id="c"), notification(platform=Platform.ANDROID)):
        assert each.to_json().keys() - ADDED_KEYS == {"tokens", "platform", "message", "data"}


def test_the_token_is_never_shown():
    assert TOKEN not in repr(notification())
    assert "0x01" not in repr(notification())


@pytest.mark.parametrize("changes", [{"topic": "im.app"}, {"collapse_id": "c"}])
def test_firebase_gets_no_topic(changes):
    with pytest.raises(ValueError, match="iOS only") as caught:
        notification(platform=Platform.ANDROID, **changes)
    assert TOKEN not in str(caught.value)


def test_bounds():
    notification(collapse_id="x" * 64)
    for bad in ("x" * 65, "é", "a\nb", "a\x00", "\ud800"):
        with pytest.raises(ValueError, match="64 printable"):
            notification(collapse_id=bad)
    with pytest.raises(ValueError, match="notif_id"):
        notification(notif_id="")


def test_platforms():
    assert [(each.value, each.label) for each in Platform] == [(1, "ios"), (2, "android")]


def test_targets_count_the_topic():
    assert notification().targets == 1
    assert notification(topic="im.app").targets == 2
