"""Each way in which gorush 1.22 says that a push failed, as recorded from it, and what is done about it."""

import json

import pytest

from wakupush.gorush.outcomes import read_answer
from wakupush.model.failures import Answer, Failure, Retry, Route, Token
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform
from wakupush.runtime.settings import DeliverySettings
from wakupush.server.delivery.retry import next_wait

IOS, ANDROID = Platform.IOS, Platform.ANDROID

APNS_NO_HOST = 'Post "https://api.push.apple.com/3/device/{}": dial tcp: lookup api.push.apple.com: no such host'
APNS_DEADLINE = 'Post "https://api.push.apple.com/3/device/{}": context deadline exceeded'
APNS_CANCELLED = 'Post "https://api.push.apple.com/3/device/{}": context canceled'
FCM_NO_HOST = (
    'unknown error while making an http call: Post "https://fcm.googleapis.com/v1/projects/p/messages:send": '
    "dial tcp: lookup fcm.googleapis.com: no such host"
)
FCM_AUTH = "Request had invalid authentication credentials. Expected OAuth 2 access token"

#: What a sender is told, whether and how it is tried again, what it says about token and route.
NEVER_DEAD = Answer.NOT_REGISTERED, Retry.NEVER, Token.DEAD, Route.WORKS
NEVER_SUSPECT = Answer.INTERNAL_ERROR, Retry.NEVER, Token.SUSPECT, Route.WORKS
NEVER = Answer.INTERNAL_ERROR, Retry.NEVER, Token.UNTOUCHED, Route.WORKS
NEVER_UNTOLD = Answer.INTERNAL_ERROR, Retry.NEVER, Token.UNTOUCHED, Route.UNTOLD
AGAIN = Answer.INTERNAL_ERROR, Retry.BACKOFF, Token.UNTOUCHED, Route.BROKEN
AGAIN_UNTOLD = Answer.INTERNAL_ERROR, Retry.BACKOFF, Token.UNTOUCHED, Route.UNTOLD
SLOWLY = Answer.INTERNAL_ERROR, Retry.SLOWLY, Token.UNTOUCHED, Route.BROKEN
SLOWLY_UNTOLD = Answer.INTERNAL_ERROR, Retry.SLOWLY, Token.UNTOUCHED, Route.UNTOLD

LOGGED = [
    (IOS, "Unregistered", Failure.TOKEN_UNREGISTERED, NEVER_DEAD),
    (IOS, "ExpiredToken", Failure.TOKEN_UNREGISTERED, NEVER_DEAD),
    (IOS, "BadDeviceToken", Failure.TOKEN_REJECTED, NEVER_SUSPECT),
    (IOS, "DeviceTokenNotForTopic", Failure.TOKEN_REJECTED, NEVER_SUSPECT),
    (IOS, "InvalidProviderToken", Failure.CREDENTIALS_REJECTED, SLOWLY),
    (IOS, "PayloadTooLarge", Failure.PAYLOAD_TOO_LARGE, NEVER),
    (IOS, "TooManyRequests", Failure.RATE_LIMITED, SLOWLY_UNTOLD),
    (IOS, "InternalServerError", Failure.PLATFORM_UNAVAILABLE, AGAIN),
    (IOS, "ServiceUnavailable", Failure.PLATFORM_UNAVAILABLE, AGAIN),
    (IOS, "", Failure.PLATFORM_UNAVAILABLE, AGAIN),
    (IOS, APNS_NO_HOST, Failure.PLATFORM_UNREACHABLE, AGAIN),
    (IOS, APNS_DEADLINE, Failure.PLATFORM_TIMED_OUT, AGAIN),
    (IOS, APNS_CANCELLED, Failure.PLATFORM_TIMED_OUT, AGAIN),
    (IOS, "SomethingThatAppleInvents", Failure.PLATFORM_UNCLEAR, AGAIN_UNTOLD),
    (ANDROID, "Requested entity was not found.", Failure.TOKEN_UNREGISTERED, NEVER_DEAD),
    (
        ANDROID,
        "The registration token is not a valid FCM registration token",
        Failure.TOKEN_REJECTED,
        NEVER_SUSPECT,
    ),
    (ANDROID, "SenderId mismatch", Failure.SENDER_MISMATCH, NEVER_SUSPECT),
    (ANDROID, "Quota exceeded for quota metric 'Send'", Failure.RATE_LIMITED, SLOWLY_UNTOLD),
    (ANDROID, FCM_AUTH, Failure.CREDENTIALS_REJECTED, SLOWLY),
    (ANDROID, "Internal error encountered.", Failure.PLATFORM_UNAVAILABLE, AGAIN),
    (ANDROID, "The service is currently unavailable.", Failure.PLATFORM_UNAVAILABLE, AGAIN),
    (ANDROID, FCM_NO_HOST, Failure.PLATFORM_UNREACHABLE, AGAIN),
    (ANDROID, "something that Google invents", Failure.PLATFORM_UNCLEAR, AGAIN_UNTOLD),
]

OK = b'{"counts":1,"logs":[],"success":"ok"}'
ANSWERED = [
    (400, b'{"code":400,"message":"Missing notifications field."}', Failure.GORUSH_REFUSED, NEVER_UNTOLD),
    (
        400,
        b'{"code":400,"message":"Number of notifications(101) over limit(100)"}',
        Failure.GORUSH_REFUSED,
        NEVER_UNTOLD,
    ),
    (429, b"", Failure.GORUSH_THROTTLED, SLOWLY),
    # The queue is full.
    (500, b"", Failure.GORUSH_FAILED, AGAIN),
    (503, b"", Failure.GORUSH_FAILED, AGAIN),
    (404, b"404 page not found", Failure.GORUSH_UNREACHABLE, AGAIN),
    (200, b"<html>", Failure.GORUSH_UNREADABLE, AGAIN),
    (200, OK[:20], Failure.GORUSH_UNREADABLE, AGAIN),
    # The platform is switched off.
    (200, b'{"counts":0,"logs":[],"success":"ok"}', Failure.GORUSH_DROPPED, SLOWLY),
]

#: Where no answer came, and where gorush is not asked.
OTHERS = [
    (Failure.GORUSH_UNREACHABLE, AGAIN),
    (Failure.GORUSH_TIMED_OUT, AGAIN),
    (Failure.LEASE_LOST, AGAIN_UNTOLD),
    (Failure.DEVICE_GONE, (Answer.NOT_REGISTERED, Retry.NEVER, Token.UNTOUCHED, Route.UNTOLD)),
    (Failure.APP_GONE, SLOWLY),
    # The platform answered: the route works.
    (Failure.TOKEN_DOUBTED, (Answer.INTERNAL_ERROR, Retry.NEVER, Token.UNTOUCHED, Route.WORKS)),
]

#: The push may have arrived all the same.
UNKNOWN = {
    Failure.PLATFORM_TIMED_OUT,
    Failure.GORUSH_TIMED_OUT,
    Failure.GORUSH_FAILED,
    Failure.GORUSH_UNREADABLE,
    Failure.LEASE_LOST,
}


def make(platform):
    return Notification(notif_id="n", token="t", platform=platform, message="m", data={})


def treatment(failure):
    return failure.answer, failure.retry, failure.token, failure.route


@pytest.mark.parametrize(("platform", "error", "failure", "expected"), LOGGED, ids=lambda value: str(value)[:40])
def test_what_gorush_logs(platform, error, failure, expected):
    entry = {"type": "failed-push", "platform": platform.label, "token": "t", "message": "m", "notif_id": "n"}
    body = json.dumps({"success": "ok", "counts": 1, "logs": [entry | {"error": error}]}).encode()
    assert read_answer([make(platform)], 200, body) == [failure]
    assert treatment(failure) == expected


@pytest.mark.parametrize(("status", "body", "failure", "expected"), ANSWERED)
def test_what_gorush_answers(status, body, failure, expected):
    assert read_answer([make(IOS)], status, body) == [failure]
    assert treatment(failure) == expected


@pytest.mark.parametrize(("failure", "expected"), OTHERS, ids=lambda value: getattr(value, "label", ""))
def test_what_no_answer_tells(failure, expected):
    assert treatment(failure) == expected


def test_no_failure_of_a_delivery_is_left_out():
    treated = {failure for *_, failure, _ in [*LOGGED, *ANSWERED, *OTHERS]}
    assert {failure for failure in Failure if failure.retry is not Retry.NEVER} <= treated
    assert {failure for failure in Failure if failure.token is not Token.UNTOUCHED} <= treated
    assert {failure for failure in Failure if failure.route is not Route.UNTOLD} <= treated
    assert {failure for failure in Failure if failure.unknown} == UNKNOWN


def test_nothing_permanent_is_tried_again():
    for *_, failure, expected in [*LOGGED, *ANSWERED, *OTHERS]:
        wait = next_wait(failure, 1, DeliverySettings(), at_least=60.0)
        assert (wait is None) == (expected[1] is Retry.NEVER)
