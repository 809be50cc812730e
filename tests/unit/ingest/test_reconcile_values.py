"""What reconcile reads out of words and numbers."""

import pytest

from wakupush.ingest.reconcile.walk import first_seen
from wakupush.model.waku_message import WakuMessage
from wakupush.runtime.settings import Settings, SettingsError, load_settings
from wakupush.runtime.urls import node_name

NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://waku:8645", "waku:8645"),
        ("https://user:planted@waku.example/rest/", "waku.example:443/rest"),
        ("http://[::1]:1", "::1:1"),
    ],
)
def test_node_name_omits_its_password(url, name):
    assert node_name(url) == name


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (int((NOW - 5) * 10**9), NOW - 5),
        (int((NOW + 5) * 10**9), NOW),  # in the future: a stranger's clock makes nothing younger
        (0, NOW - 60),  # as old as the walk looks back
    ],
)
def test_since_when_a_message_is_in_the_store(timestamp, expected):
    message = WakuMessage(payload=b"x", content_topic="/a/1/b/c", timestamp=timestamp)
    assert first_seen(message, int((NOW - 60) * 10**9), NOW) == pytest.approx(expected)


def test_the_ledger_must_outlast_the_window(monkeypatch):
    assert Settings().retention.ledger >= Settings().reconcile.window + Settings().reconcile.overlap
    monkeypatch.setenv("WAKUPUSH_RECONCILE__WINDOW", "172800")
    with pytest.raises(SettingsError, match="WAKUPUSH_RETENTION__LEDGER must be at least 172920"):
        load_settings()
