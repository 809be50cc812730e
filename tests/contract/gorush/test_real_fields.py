"""The recordings of fields against a real gorush: what it answers, and what Apple and Google get."""

import shutil
from itertools import product

import pytest

from support import recordings
from support.profiles import EVERY, posted
from support.real_gorush import BINARY, connected
from wakupush.devnet.gorush import platforms
from wakupush.gorush.profiles import load_profile
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.protocol.notification import PROFILES
from wakupush.runtime.profiles import ProfileTable
from wakupush.runtime.settings import Settings

if not BINARY or not shutil.which("node"):
    pytest.skip("WAKUPUSH_TEST_GORUSH does not name a gorush binary, or there is no Node.js", allow_module_level=True)
pytestmark = pytest.mark.real

AREA = "gorush-fields"
NOW = 1_900_000_000.0


@pytest.fixture(scope="module")
def post(tmp_path_factory):
    with connected(tmp_path_factory.mktemp("gorush")) as function:
        yield function


@pytest.mark.parametrize("name", sorted(recordings.names(AREA)))
def test_as_recorded(post, name):
    recording = recordings.load(AREA, name)
    answer, upstream = post(recording.body)
    assert (answer.status_code, answer.json(), upstream) == (recording.status, recording.answer, recording.upstream)


MINE = ProfileTable(text="New", **EVERY, join_request={"data_only": ["ios", "android"]}, mention={"text_key": "K"})


@pytest.mark.parametrize("name", [*PROFILES, "mine"])
def test_phones_get_what_a_profile_says(post, name):
    settings = Settings(profiles={"mine": MINE})
    for kind, platform in product(NotificationType, Platform):
        notification = posted(load_profile(settings, name), platform, kind, now=NOW)
        answer, [push] = post({"notifications": [notification]})
        assert answer.json()["logs"] == []
        if platform is Platform.IOS:
            assert (push["headers"], push["body"]) == platforms.apple(notification)
        else:
            assert push["body"]["message"] == platforms.google(notification) | {"token": "token"}
