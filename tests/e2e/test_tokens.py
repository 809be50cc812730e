"""What gorush's webhook alone tells: from message to answer, by real processes."""

from contextlib import ExitStack

import httpx2
import pytest

from e2e.users import User
from wakupush.devnet.processes import wait_until
from wakupush.pb.push_notification_pb2 import PushNotificationReport
from wakupush.waku.node import WakuNode

IOS, ANDROID = 1, 2


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(
        settings={
            "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.2",
            "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "2",
            "WAKUPUSH_WORKER__ANSWER_WITHIN": "5",  # a busy machine must not turn a corrected answer into a success
        }
    )


@pytest.fixture
def rows(stack):
    with stack.connect() as connection:
        yield lambda query: connection.execute(query).fetchall()


@pytest.fixture
def register(stack):
    """Register a device with a scripted token, and return a function that asks for a push to it."""
    with WakuNode(stack.node_url) as node, ExitStack() as ends:

        def register(token, platform=IOS):
            apn_topic = "im.status.ethereum" if platform == IOS else ""
            user = User(stack, node, device_token=token, token_type=platform, apn_topic=apn_topic)
            ends.callback(user.observer.close)
            user.register()
            user.wait(replies=1)

            def push():
                user.ask_for_push()
                user.wait(replies=len(user.replies) + 1)
                report = user.reports()[-1]
                return "success" if report.success else PushNotificationReport.ErrorType.Name(report.error)

            return push

        yield register


def newest(rows):
    [row] = rows("SELECT state, failure, attempt FROM deliveries ORDER BY seen_at DESC LIMIT 1")
    return row


def test_webhook_failure_reaches_the_sender(register, rows):
    assert register("total-dead", ANDROID)() == "NOT_REGISTERED"
    assert newest(rows) == ("failed", "token_unregistered", 1)


def test_what_only_the_webhook_tells_is_tried_again(register, rows):
    assert register("total-flaky-1", ANDROID)() == "success"
    wait_until(lambda: newest(rows) == ("delivered", None, 2), timeout=120, what="the second attempt got through")


def test_what_the_webhook_tells_late_still_counts(stack, register, rows):
    push = register("good", ANDROID)
    assert push() == "success"
    [(key,)] = rows("SELECT delivery_key FROM deliveries ORDER BY seen_at DESC LIMIT 1")
    name, secret = stack.feedback_header.split(": ")
    entry = {
        "notif_id": f"{key.hex()}-1",
        "platform": "android",
        "error": "Requested entity was not found.",
        "token": "good",
    }
    for wrong, status in ((secret, 200), ("wrong", 403)):
        answer = httpx2.post(stack.feedback_url, json=entry, headers={name: wrong}, trust_env=False)
        assert answer.status_code == status
    wait_until(lambda: newest(rows) == ("failed", "token_unregistered", 1), timeout=120, what="it is failed")
    assert push() == "NOT_REGISTERED"


def test_receiver_stops_gracefully_without_leaks(stack):
    log = stack.feedback.log.read_text()
    for token in ("total-dead", "total-flaky", "bad-phone", "dead-tablet", stack.feedback_header.split(": ")[1]):
        assert token not in log
    stack.feedback.stop()
    assert stack.feedback.wait() == 0
    assert '"level": "error"' not in log
