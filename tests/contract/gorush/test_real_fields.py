"""The recordings of fields against a real gorush: what it answers, and what Apple and Google get."""

import shutil

import pytest

from support import recordings
from support.real_gorush import BINARY, connected

if not BINARY or not shutil.which("node"):
    pytest.skip("WAKUPUSH_TEST_GORUSH does not name a gorush binary, or there is no Node.js", allow_module_level=True)
pytestmark = pytest.mark.real

AREA = "gorush/fields"


@pytest.fixture(scope="module")
def post(tmp_path_factory):
    with connected(tmp_path_factory.mktemp("gorush")) as function:
        yield function


@pytest.mark.parametrize("name", sorted(recordings.names(AREA)))
def test_as_recorded(post, name):
    recording = recordings.load(AREA, name)
    answer, upstream = post(recording.body)
    assert (answer.status_code, answer.json(), upstream) == (recording.status, recording.answer, recording.upstream)
