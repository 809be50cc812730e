"""Every recorded answer of a real gorush to a post, and every call of its webhook, through the parsers."""

import json
from pathlib import Path

import pytest

from wakupush.gorush.outcomes import read_answer, read_feedback
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform

RECORDINGS = Path(__file__).parents[2] / "recordings" / "gorush"

OK = None
REFUSED, FAILED = Failure.GORUSH_REFUSED, Failure.GORUSH_FAILED
DROPPED, UNREADABLE = Failure.GORUSH_DROPPED, Failure.GORUSH_UNREADABLE
NO_GORUSH = Failure.GORUSH_UNREACHABLE
DEAD, REJECTED = Failure.TOKEN_UNREGISTERED, Failure.TOKEN_REJECTED
UNREACHABLE, UNAVAILABLE = Failure.PLATFORM_UNREACHABLE, Failure.PLATFORM_UNAVAILABLE

#: The outcome of each notification of a post that was recorded in both modes, and came to the same.
IN_BOTH_MODES = {
    "push-501-android-tokens": UNREADABLE,  # 501 tokens in one notification, which ours cannot have
    "push-empty-body": REFUSED,
    "push-empty-notifications": REFUSED,
    "push-empty-object": REFUSED,
    "push-exactly-max-disabled-platform": DROPPED,
    "push-get-method": NO_GORUSH,
    "push-invalid-json": REFUSED,
    "push-missing-platform": DROPPED,
    "push-missing-tokens-android": DROPPED,
    "push-missing-tokens-ios": DROPPED,
    "push-no-content-type": DROPPED,
    "push-null-notifications": REFUSED,
    "push-over-max": REFUSED,
    "push-platform-disabled": DROPPED,
    "push-platform-string": REFUSED,
    "push-trailing-garbage": DROPPED,
    "push-unknown-fields": DROPPED,
    "push-unknown-platform": DROPPED,
    "push-wrong-type": REFUSED,
    "sigterm-inflight": OK,
}
#: The outcome of each notification of a recorded post; one outcome for a post where all have the same.
EXPECTED = {
    **{f"{name}-{mode}": outcome for name, outcome in IN_BOTH_MODES.items() for mode in ("sync", "async")},
    "fcm-via-core-http_proxy-broken-h2": UNREACHABLE,
    # Asynchronous mode: failures are told by the webhook only.
    "feedback-trigger-hook-err": OK,
    "feedback-trigger-hook-ok": UNREADABLE,  # 501 tokens in one notification, which ours cannot have
    "feedback-trigger-hook-slow": OK,
    "push-android-only-sync": UNREACHABLE,
    "push-android-with-topic-async": UNREADABLE,  # a topic with Firebase, which ours cannot have: counted as two
    "push-android-with-topic-sync": UNREACHABLE,
    "push-body-9MB-async": OK,
    "push-body-9MB-sync": UNREACHABLE,
    "push-empty-token-string-ios-async": OK,
    "push-empty-token-string-ios-sync": UNREACHABLE,
    "push-ios-only-sync": UNREACHABLE,
    "push-long-token-async": OK,
    "push-long-token-sync": UNREACHABLE,
    "push-mixed-disabled-and-enabled-async": [DROPPED, OK],
    "push-mixed-disabled-and-enabled-sync": [DROPPED, UNREACHABLE],
    "push-notif_id-sync": UNREACHABLE,
    "push-payload-over-4k-async": OK,
    "push-payload-over-4k-sync": UNREACHABLE,
    "push-valid-ios-android-async": OK,
    "push-valid-ios-android-sync": UNREACHABLE,
    "push-weird-token-async": OK,
    "push-weird-token-sync": UNREACHABLE,
    "push-with-authorization": DROPPED,
    "queue-full-async-0": OK,
    "queue-full-async-1": OK,
    "queue-full-async-2": OK,
    "queue-full-async-3": FAILED,
    "queue-full-async-4": FAILED,
    "queue-full-async-5": FAILED,
    "queue-full-async-batch": FAILED,
    "queue-full-async-partial": FAILED,
    "queue-full-sync-after": OK,
    "stub-100-notifs": OK,
    "stub-100-notifs-dead": DEAD,
    "stub-apns-bad": REJECTED,
    "stub-apns-dead": DEAD,
    "stub-apns-empty": UNAVAILABLE,
    "stub-apns-expired": DEAD,
    # With gorush's own retries a push that got through keeps its failed entry: max_retry has to be 0.
    "stub-apns-flaky": UNAVAILABLE,
    "stub-apns-ise": UNAVAILABLE,
    "stub-apns-many": Failure.RATE_LIMITED,
    "stub-apns-payload-4k": Failure.PAYLOAD_TOO_LARGE,
    "stub-apns-prov": Failure.CREDENTIALS_REJECTED,
    "stub-apns-topic": REJECTED,
    "stub-apns-unav": UNAVAILABLE,
    "stub-fcm-501": UNREADABLE,  # 501 tokens in one notification, which ours cannot have
    "stub-fcm-auth401": Failure.CREDENTIALS_REJECTED,
    "stub-fcm-bad-data-key": OK,
    # Firebase's SDK refused it; only the webhook tells.
    "stub-fcm-empty-token": OK,
    "stub-fcm-flaky": UNAVAILABLE,
    "stub-fcm-internal": UNAVAILABLE,
    "stub-fcm-invalid": REJECTED,
    "stub-fcm-quota": Failure.RATE_LIMITED,
    "stub-fcm-sender": Failure.SENDER_MISMATCH,
    "stub-fcm-unavail": UNAVAILABLE,
    "stub-fcm-unreg": DEAD,
    "stub-hosts-android-topic-mixed": UNREADABLE,  # a topic with Firebase, which ours cannot have: counted as two
    "stub-hosts-dead": DEAD,
    "stub-hosts-ok": OK,
    "stub-https_proxy-env-fcm-dead": DEAD,
    "stub-https_proxy-env-fcm-ok": OK,
    "stub-https_proxy-env-ios": UNREACHABLE,
    "stub-ios-alert-only-message": OK,
    "stub-ios-weird-token": OK,
    "stub-mixed-tokens-android": REJECTED,  # several tokens in one notification, which ours cannot have
    "stub-mixed-tokens-ios": REJECTED,  # as above
    "stub-ok-android": OK,
    "stub-ok-both": OK,
    "stub-ok-ios": OK,
    "unreachable-blackhole-ios": Failure.PLATFORM_TIMED_OUT,
    "unreachable-refused-android": UNREACHABLE,
    "unreachable-refused-ios": UNREACHABLE,
}
#: What the webhook tells in each recorded call.
FEEDBACK = {
    "feedback-webhook-0": ("dead-1", DEAD),
    "feedback-webhook-1": ("dead-2", DEAD),
    "feedback-webhook-2": ("empty-tok", REJECTED),
}
#: Posts without any answer: the client's own tests have such servers.
NO_ANSWER = {"push-during-shutdown", "queue-full-sync", "unreachable-blackhole-android"}
#: Other routes and measurements.
NO_POST = {
    "_throughput-accept-e2e",
    "config",
    "healthz-get",
    "healthz-head",
    "metrics",
    "not-found",
    "queue-full-async-after-stat",
    "root",
    "stat-app",
    "stat-go",
    "sys-stats",
    "version",
}
#: Recorded requests that were cut short, or that are none: (notif_id, platform, topic) of stand-ins.
ONE_IOS = [("", 1, "t")]
HUNDRED_MIXED = [(f"n{number}", 1 + number % 2, "" if number % 2 else "t") for number in range(100)]
STAND_INS = {
    "push-body-9MB-async": ONE_IOS,
    "push-body-9MB-sync": ONE_IOS,
    "push-long-token-async": ONE_IOS,
    "push-long-token-sync": ONE_IOS,
    "push-payload-over-4k-async": ONE_IOS,
    "push-payload-over-4k-sync": ONE_IOS,
    "stub-100-notifs": HUNDRED_MIXED,
    "stub-100-notifs-dead": [(f"n{number}", 1, "t") for number in range(100)],
}


def load(name):
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def own_notifications(name, body):
    """Ours that come closest to what was posted; a platform that we do not serve stands as a switched-off Android."""
    if name in STAND_INS:
        sources = STAND_INS[name]
    else:
        notifications = body.get("notifications") if isinstance(body, dict) else None
        sources = [(each.get("notif_id"), each.get("platform"), each.get("topic")) for each in notifications or [{}]]
    return [
        Notification(
            notif_id=notif_id or f"position-{position}",
            token="t",
            platform=Platform.IOS if platform == 1 else Platform.ANDROID,
            message="m",
            topic=topic or "" if platform == 1 else "",
            data={},
        )
        for position, (notif_id, platform, topic) in enumerate(sources)
    ]


def test_every_recording_is_accounted_for():
    tables = [EXPECTED.keys(), FEEDBACK.keys(), NO_ANSWER, NO_POST]
    assert sum(map(len, tables)) == len(set().union(*tables))
    assert {path.stem for path in RECORDINGS.glob("*.json")} == set().union(*tables)


@pytest.mark.parametrize("name", EXPECTED)
def test_answers(name):
    recording = load(name)
    notifications = own_notifications(name, recording["request"]["body"])
    answer = recording["response"]["body"]
    body = answer if isinstance(answer, str) else json.dumps(answer)
    expected = EXPECTED[name] if isinstance(EXPECTED[name], list) else [EXPECTED[name]] * len(notifications)
    assert read_answer(notifications, recording["response"]["status"], body.encode()) == expected


@pytest.mark.parametrize("name", FEEDBACK)
def test_webhook(name):
    assert read_feedback(json.dumps(load(name)["request"]["body"]).encode()) == FEEDBACK[name]
