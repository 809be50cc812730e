"""Dead tokens, what gorush's webhook alone tells, and dead letters: from message to answer, by real processes."""

import json
import re
import subprocess
import sys

import httpx2
import pytest

from support import stored
from wakupush.devnet.demo import messages
from wakupush.devnet.demo.conversation import open_reply
from wakupush.devnet.demo.observer import Observer
from wakupush.devnet.demo.stack import SHARDS
from wakupush.devnet.parts.processes import wait_until
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistrationResponse,
    PushNotificationReport,
    PushNotificationResponse,
)
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

IOS, ANDROID = 1, 2


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(
        settings={
            "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.2",
            "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "2",
            "WAKUPUSH_WORKER__ANSWER_WITHIN": "10",  # a busy machine must not turn a corrected answer into a success
            "WAKUPUSH_HTTP_PORT": "0",
        }
    )


@pytest.fixture
def rows(stack):
    with stack.connect() as connection:
        yield lambda query: connection.execute(query).fetchall()
        connection.execute("TRUNCATE token_trials")


@pytest.fixture
def register(stack):
    """Register a device with a scripted token, and return a function that asks for a push to it."""
    observer = Observer(stack.node_url, stack.gorush_url)
    with WakuNode(stack.node_url) as node:

        def ask(client, message):
            node.publish(SHARDS[0], message)
            found = []

            def answered():
                found.extend(filter(None, (open_reply(seen.message, (client,)) for seen in observer.messages())))
                return bool(found)

            wait_until(answered, timeout=120, what="an answer")
            return found[0].inner

        def register(token, platform=IOS):
            client, server = PrivateKey.generate(), stack.key.public_key
            apn_topic = "im.status.ethereum" if platform == IOS else ""
            device = messages.registration(client, server, device_token=token, token_type=platform, apn_topic=apn_topic)
            assert PushNotificationRegistrationResponse.FromString(
                ask(client, messages.register(client, server, device))
            ).success

            def push():
                item = messages.notification(client.public_key.key_hash, device)
                answer = PushNotificationResponse.FromString(ask(client, messages.request(client, server, [item])))
                [report] = answer.reports
                return "success" if report.success else PushNotificationReport.ErrorType.Name(report.error)

            return push

        yield register
    observer.close()


def command(stack, *arguments):
    """Run ``wakupush dead-letters`` and return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "wakupush", "dead-letters", *arguments],
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


def newest(rows):
    [row] = rows("SELECT state, failure, attempt FROM deliveries ORDER BY seen_at DESC LIMIT 1")
    return row


def test_what_only_the_webhook_tells_reaches_the_sender(register, rows):
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


def test_three_doubts_and_a_token_is_dead(register):
    assert register("good")() == "success", "the platform takes others"
    push = register("bad-phone")
    assert [push() for _ in range(4)] == [*["INTERNAL_ERROR"] * 3, "NOT_REGISTERED"]


def test_many_bad_tokens_stop_marking_and_alarm(stack, register, rows):
    rows("INSERT INTO token_trials VALUES (2, now(), 99, 100, 30) RETURNING 1")
    push = register("dead-tablet", ANDROID)
    assert [push(), push()] == ["INTERNAL_ERROR"] * 2
    assert register("dead-phone")() == "NOT_REGISTERED"
    stack.beat.restart()
    wait_until(lambda: stack.beat.has_logged('"token_marking_stopped"'), timeout=120, what="the alarm is logged")
    [port] = re.findall(r'"http_port": (\d+)', stack.beat.log.read_text())[-1:]
    metrics = httpx2.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    assert 'wakupush_token_marking_stopped{platform="android"} 1.0' in metrics
    assert 'wakupush_token_marking_stopped{platform="ios"} 0.0' in metrics
    rows("DELETE FROM token_trials RETURNING 1")
    assert push() == "NOT_REGISTERED"


def test_a_dead_letter_is_found_and_sent_again(stack, register, rows):
    register("unavailable-but-not-for-ever")()
    wait_until(
        lambda: newest(rows) == ("dead_letter", "platform_unavailable", 2), timeout=120, what="no attempt is left"
    )
    status, output = command(stack, "list", "--json", "--reason", "platform_unavailable", "--newer-than", "10m")
    assert status == 0
    [letter] = [json.loads(line) for line in output.splitlines()]
    with stack.connect() as connection:
        stored.reroute(connection, Identity.of(stack.key), "good", where=lambda token: token.startswith("unavailable"))
    assert command(stack, "retry", letter["delivery_key"][:10])[0] == 0
    wait_until(lambda: newest(rows) == ("delivered", None, 1), timeout=120, what="it is delivered")
    assert command(stack, "list")[0] == 1


def test_the_receiver_ends_gracefully_and_has_told_no_token(stack):
    log = stack.feedback.log.read_text()
    for token in ("total-dead", "total-flaky", "bad-phone", "dead-tablet", stack.feedback_header.split(": ")[1]):
        assert token not in log
    stack.feedback.stop()
    assert stack.feedback.wait() == 0
    assert '"level": "error"' not in log
