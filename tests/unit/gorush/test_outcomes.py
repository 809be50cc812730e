import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.gorush.outcomes import read_answer, read_feedback
from wakupush.gorush.wording import APNS_REASONS, FCM_MESSAGES, classify
from wakupush.model.failures import Failure, Retry, Token
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform

IOS, ANDROID = Platform.IOS, Platform.ANDROID


def make(notif_id, platform=IOS, topic=""):
    return Notification(
        notif_id=notif_id, token=f"token-{notif_id}", platform=platform, message="m", topic=topic, data={}
    )


def log(notif_id, platform="ios", error="Unregistered"):
    entry = {"type": "failed-push", "platform": platform, "token": "****", "message": "m", "error": error}
    return entry | ({"notif_id": notif_id} if notif_id else {})


def answer(counts, *logs):
    return json.dumps({"success": "ok", "counts": counts, "logs": logs}).encode()


TWO_IOS = [make("a"), make("b")]
MIXED = [make("i1", topic="im.app"), make("i2", topic="im.app"), make("a1", ANDROID)]


@pytest.mark.parametrize(
    ("notifications", "body", "expected"),
    [
        pytest.param(MIXED, answer(5), [None, None, None], id="accepted"),
        pytest.param(
            MIXED, answer(5, log("i2")), [None, Failure.TOKEN_UNREGISTERED, None], id="one failed, matched by its id"
        ),
        pytest.param(
            TWO_IOS,
            answer(2, log("b"), log("b", error="InternalServerError")),
            [None, Failure.PLATFORM_UNAVAILABLE],
            id="the last entry counts",
        ),
        pytest.param(TWO_IOS, answer(0), [Failure.GORUSH_DROPPED] * 2, id="switched off"),
        pytest.param([make("a", topic="im.app")], answer(1), [Failure.GORUSH_DROPPED], id="one of two targets"),
        pytest.param(MIXED, answer(4), [None, None, Failure.GORUSH_DROPPED], id="Android is switched off"),
        pytest.param(
            MIXED, answer(1), [Failure.GORUSH_DROPPED, Failure.GORUSH_DROPPED, None], id="iOS is switched off"
        ),
        pytest.param(MIXED, answer(3), [Failure.GORUSH_DROPPED] * 3, id="short, but by no platform"),
        pytest.param(
            [make("a"), make("b", ANDROID)], answer(1), [Failure.GORUSH_DROPPED] * 2, id="either may be switched off"
        ),
        pytest.param(
            MIXED,
            answer(3, log("i1")),
            [Failure.TOKEN_UNREGISTERED, Failure.GORUSH_DROPPED, Failure.GORUSH_DROPPED],
            id="an entry tells more than the counts",
        ),
        pytest.param(TWO_IOS, answer(3), [Failure.GORUSH_UNREADABLE] * 2, id="more than was posted"),
        pytest.param([make("a")], answer(1, log("")), [Failure.TOKEN_UNREGISTERED], id="no id, one notification"),
        pytest.param([make("a")], answer(1, log("?")), [Failure.TOKEN_UNREGISTERED], id="other id, one notification"),
        pytest.param(
            MIXED,
            answer(5, log("", "android", "SenderId mismatch")),
            [None, None, Failure.SENDER_MISMATCH],
            id="no id, one notification of the platform",
        ),
        pytest.param(
            MIXED,
            answer(5, log("?"), log("i2", error="BadDeviceToken")),
            [Failure.GORUSH_UNREADABLE, Failure.TOKEN_REJECTED, None],
            id="unknown id, several of the platform",
        ),
        pytest.param(
            MIXED, answer(5, log("", "huawei", "?")), [Failure.GORUSH_UNREADABLE] * 3, id="no id, unknown platform"
        ),
        pytest.param(
            [make("a", ANDROID)],
            answer(1, log("a", "ios", "SenderId mismatch")),
            [Failure.SENDER_MISMATCH],
            id="our own platform decides how a text is read",
        ),
    ],
)
def test_answers(notifications, body, expected):
    assert read_answer(notifications, 200, body) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, Failure.GORUSH_REFUSED),
        (413, Failure.GORUSH_REFUSED),
        (429, Failure.GORUSH_THROTTLED),
        (500, Failure.GORUSH_FAILED),
        (503, Failure.GORUSH_FAILED),
        (599, Failure.GORUSH_FAILED),
        (204, Failure.GORUSH_UNREADABLE),
        (302, Failure.GORUSH_UNREACHABLE),
        (401, Failure.GORUSH_UNREACHABLE),
        (404, Failure.GORUSH_UNREACHABLE),
    ],
)
def test_statuses(status, expected):
    assert read_answer(TWO_IOS, status, answer(2)) == [expected] * 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b"<html>",
        b"\xff",
        b"[" * 100_000,
        b"9" * 5000,
        answer(2)[:-1],
        answer(None),
        answer("2"),
        answer(2.0),
        answer(True),
        b'{"counts":2,"logs":null}',
        b'{"counts":2,"logs":{}}',
        answer(2, None),
        answer(2, {}),
        answer(2, log("a") | {"error": None}),
        answer(2, log("a") | {"platform": 1}),
        answer(2, log("a") | {"notif_id": 5}),
    ],
)
def test_what_cannot_be_read_is_unknown(body):
    assert read_answer(TWO_IOS, 200, body) == [Failure.GORUSH_UNREADABLE] * 2
    assert Failure.GORUSH_UNREADABLE.unknown


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
entries = json_values | st.builds(
    log,
    st.sampled_from(["", "?", "i1", "i2", "a1"]),
    st.sampled_from(["ios", "android", "huawei"]),
    st.sampled_from(["Unregistered", "", "x"]) | st.text(max_size=10),
)
bodies = st.binary(max_size=60) | st.builds(
    lambda counts, logs: json.dumps({"counts": counts, "logs": logs}).encode(),
    st.integers(-1, 7) | json_values,
    st.lists(entries, max_size=4) | json_values,
)


@given(st.sampled_from([TWO_IOS, MIXED, MIXED[:1]]), st.integers(100, 999), bodies)
def test_each_notification_has_one_outcome(notifications, status, body):
    for some_status in (200, status):
        outcomes = read_answer(notifications, some_status, body)
        assert len(outcomes) == len(notifications)
        assert all(outcome is None or isinstance(outcome, Failure) for outcome in outcomes)


@given(st.lists(st.sampled_from(["i1", "i2", "a1"]), max_size=5))
def test_exactly_the_listed_ones_fail(failed):
    outcomes = read_answer(MIXED, 200, answer(5, *(log(notif_id, error="?") for notif_id in failed)))
    assert {each.notif_id for each, outcome in zip(MIXED, outcomes, strict=True) if outcome} == set(failed)


def test_feedback():
    body = json.dumps(log("d1", "android", "Requested entity was not found.")).encode()
    assert read_feedback(body) == ("d1", Failure.TOKEN_UNREGISTERED)
    for useless in (b"", b"[]", b"[" * 100_000, json.dumps(log("")).encode(), json.dumps(log("x", "huawei")).encode()):
        assert read_feedback(useless) is None


@given(st.binary(max_size=60) | entries.map(lambda entry: json.dumps(entry).encode()))
def test_any_feedback_is_a_value_or_nothing(body):
    match read_feedback(body):
        case None | (str(), Failure()):
            pass
        case other:
            pytest.fail(f"{other!r}")


NO_HOST = (
    'Post "https://api.push.apple.com/3/device/x": dial tcp: lookup api.push.apple.com on 1.1.1.1:53: no such host'
)
FIREBASE = 'unknown error while making an http call: Post "https://fcm.googleapis.com/v1/projects/p/messages:send": '


@pytest.mark.parametrize(
    ("platform", "error", "expected"),
    [
        (IOS, "", Failure.PLATFORM_UNAVAILABLE),
        (IOS, "unregistered", Failure.PLATFORM_UNCLEAR),
        (IOS, "Requested entity was not found.", Failure.PLATFORM_UNCLEAR),
        (IOS, "BadPriority", Failure.PLATFORM_UNCLEAR),
        (IOS, NO_HOST, Failure.PLATFORM_UNREACHABLE),
        (IOS, 'Post "https://a/3/device/x": x509: certificate signed by', Failure.PLATFORM_UNREACHABLE),
        (IOS, 'Post "https://a/3/device/x": context deadline exceeded', Failure.PLATFORM_TIMED_OUT),
        (IOS, 'Post "https://a/3/device/x": context canceled', Failure.PLATFORM_TIMED_OUT),
        (IOS, 'Post "https://a/3/device/x": unexpected EOF', Failure.PLATFORM_TIMED_OUT),
        (IOS, 'parse "https://a/3/device/%zz": invalid URL escape "%zz"', Failure.TOKEN_REJECTED),
        (
            IOS,
            'Post "https://a/3/device/x": net/http: invalid header field value for "Apns-Topic"',
            Failure.TOKEN_REJECTED,
        ),
        (
            IOS,
            'Post "https://a/3/device/x": http2: request header list larger than peer\'s advertised limit',
            Failure.TOKEN_REJECTED,
        ),
        (ANDROID, "", Failure.PLATFORM_UNCLEAR),
        (ANDROID, "Unregistered", Failure.PLATFORM_UNCLEAR),
        (ANDROID, "Requested entity was not found.", Failure.TOKEN_UNREGISTERED),
        (ANDROID, "The registration token is not a valid FCM registration token", Failure.TOKEN_REJECTED),
        (ANDROID, "Request contains an invalid argument.", Failure.TOKEN_REJECTED),
        (ANDROID, "SenderId mismatch", Failure.SENDER_MISMATCH),
        (ANDROID, "Android message is too big", Failure.PAYLOAD_TOO_LARGE),
        (ANDROID, "Quota exceeded for quota metric 'x'", Failure.RATE_LIMITED),
        (ANDROID, "Request had invalid authentication credentials.", Failure.CREDENTIALS_REJECTED),
        (ANDROID, "Auth error from APNS or Web Push Service", Failure.TOKEN_REJECTED),
        (ANDROID, "Permission 'cloudmessaging.messages.create' denied", Failure.CREDENTIALS_REJECTED),
        (ANDROID, "Internal error encountered.", Failure.PLATFORM_UNAVAILABLE),
        (ANDROID, "The service is currently unavailable.", Failure.PLATFORM_UNAVAILABLE),
        (ANDROID, "something new", Failure.PLATFORM_UNCLEAR),
        (ANDROID, FIREBASE + "dial tcp 1.2.3.4:443: connect: connection refused", Failure.PLATFORM_UNREACHABLE),
        (ANDROID, FIREBASE + "context deadline exceeded", Failure.PLATFORM_TIMED_OUT),
        (
            ANDROID,
            FIREBASE + 'auth: cannot fetch token: 400\nResponse: {"error":"invalid_grant"}',
            Failure.CREDENTIALS_REJECTED,
        ),
        (ANDROID, FIREBASE + "auth: cannot fetch token: 503\nResponse: ", Failure.PLATFORM_UNAVAILABLE),
        (
            ANDROID,
            FIREBASE + 'auth: cannot fetch token: Post "https://oauth2.googleapis.com/token": EOF',
            Failure.PLATFORM_UNREACHABLE,
        ),
    ],
)
def test_wording(platform, error, expected):
    assert classify(platform, error) is expected


@given(st.sampled_from(Platform), st.text())
def test_any_text_is_classified(platform, error):
    assert isinstance(classify(platform, error), Failure)


def test_what_is_not_known_is_tried_again():
    assert Failure.PLATFORM_UNCLEAR.retry is Retry.BACKOFF
    assert Failure.PLATFORM_TIMED_OUT.unknown


def test_only_a_certain_word_kills_a_token():
    dead = {text for text, failure in [*APNS_REASONS.items(), *FCM_MESSAGES] if failure.token is Token.DEAD}
    assert dead == {"Unregistered", "ExpiredToken", "requested entity was not found", "notregistered"}


def test_texts_are_never_shown():
    entry = log("a", error=f"{NO_HOST} token-a")
    assert "token-a" not in str(read_answer([make("a")], 200, answer(1, entry)))
