"""What a real gorush says of headers that are longer than Apple announces to take: 8,000 bytes."""

import shutil

import pytest

from support.real_gorush import BINARY, connected
from wakupush.gorush.wording import classify
from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform

if not BINARY or not shutil.which("node"):
    pytest.skip("WAKUPUSH_TEST_GORUSH does not name a gorush binary, or there is no Node.js", allow_module_level=True)
pytestmark = pytest.mark.real


def test_long_headers_reject_the_device_token(tmp_path):
    def notification(token, topic):
        return {"tokens": [token], "platform": 1, "message": "m", "topic": topic, "notif_id": "n"}

    with connected(tmp_path) as post:
        # Until Apple's settings have arrived, gorush knows of no limit.
        answer, upstream = post({"notifications": [notification("a" * 64, "im.app")]})
        assert (answer.json()["logs"], len(upstream)) == ([], 1)
        for token, topic in (("a" * 9000, "im.app"), ("a" * 64, "t" * 9000)):
            answer, upstream = post({"notifications": [notification(token, topic)]})
            [entry] = answer.json()["logs"]
            assert entry["error"].endswith("\": http2: request header list larger than peer's advertised limit")
            assert classify(Platform.IOS, entry["error"]) is Failure.TOKEN_REJECTED
            assert upstream == []
        # The longest device token and topic that are taken fit.
        answer, upstream = post({"notifications": [notification("a" * 200, "t" * 255)]})
        assert (answer.json()["logs"], len(upstream)) == ([], 1)
