"""The fields of notifications: what the development gorush makes of them, and what the real one made of them."""

import pytest

from support import recordings
from wakupush.devnet.gorush import platforms
from wakupush.devnet.gorush.app import create_app
from wakupush.devnet.gorush.gorush import payload_bytes

AREA = "gorush-fields"
NAMES = sorted(recordings.names(AREA))


@pytest.mark.parametrize("name", NAMES)
def test_answers_as_recorded(name, serve):
    recording = recordings.load(AREA, name)
    answer = serve(create_app()).request(
        recording.method, recording.path, headers=recording.headers, content=recording.content()
    )
    assert (answer.status_code, answer.headers["content-type"]) == (recording.status, recording.content_type)
    assert answer.json() == recording.answer


@pytest.mark.parametrize("name", NAMES)
def test_platforms_get_what_is_recorded(name):
    recording = recordings.load(AREA, name)
    pushes = []
    for notification in recording.body["notifications"] if recording.status == 200 else ():
        if notification["platform"] == 1:
            headers, body = platforms.apple(notification)
            pushes.append((headers, body, payload_bytes(notification)))
            continue
        try:
            message = platforms.google(notification)
        except platforms.RefusedByFirebaseError:
            continue
        body = {"message": message | {"token": notification["tokens"][0]}}
        pushes.append(({}, body, payload_bytes(notification) + len(',"token":"t"') + len('{"message":}')))
    assert pushes == [(push["headers"], push["body"], push["bytes"]) for push in recording.upstream]


def test_recordings_hold_what_firebase_refuses():
    refused = {
        name
        for name in NAMES
        if (recording := recordings.load(AREA, name)).status == 200
        and len(recording.upstream) < len(recording.body["notifications"])
    }
    assert refused == {
        "priority-unknown",
        "android-priority-unknown",
        "android-ttl-negative",
        "android-args-alone",
        "android-title-args-alone",
    }
