"""``wakupush why``: the cause of each push that does not arrive is in the last sentence."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.conninfo import make_conninfo

from support import commands
from support.served import SHARD, fault, is_due, request
from wakupush.devnet import messages
from wakupush.model.dead_letters import PastEvent
from wakupush.model.events import EventKind
from wakupush.model.failures import Failure
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.model.roles import Role
from wakupush.operate import why
from wakupush.operate.why import ADVICE
from wakupush.postgres import dead_letters, history
from wakupush.protocol.hashing import message_hash, shake256_64
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.breaker import BreakerStore
from wakupush.redis.presence import Presence
from wakupush.server.delivery.next_attempts import attempt_due


@pytest.fixture
def run(dsn, monkeypatch):
    """Run the command for a server, as the role of operators with the server's key."""

    def run(server, *arguments, expect=0):
        monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.OPERATOR))
        monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY", server.context.identity.private_key.secret.hex())
        return commands.run("why", *arguments, expect=expect).stdout

    return run


@pytest.fixture
def conclusion(run):
    def conclusion(server, message, **options):
        story = json.loads(run(server, message_hash(SHARD, message).hex(), "--json", **options))
        return story["conclusion"]

    return conclusion


def test_a_delivered_push_is_told_hop_by_hop(run, server, client):
    message = request(client, server, server.register(client))
    server.handle(DISPATCH, message)
    story = json.loads(run(server, message_hash(SHARD, message).hex()[:16], "--json"))
    assert [event["kind"] for event in story["events"]] == [
        "received", "opened", "answered", "admitted", "attempt", "delivered",
    ]  # fmt: skip
    assert story["conclusion"].startswith("gorush took it")
    text = run(server, message_hash(SHARD, message).hex())
    assert text.splitlines()[-1].endswith("try `wakupush test-push`")
    assert "delivered" in text


def test_a_message_that_nobody_heard_is_unknown(server, client, conclusion):
    assert conclusion(server, request(client, server, messages.registration(client, server.key)), expect=1).startswith(
        "nothing is known of it"
    )


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("dead-1", "failed for good: the device token is dead"),
        ("bad-1", "does not know the token"),
        ("unavailable-1", "is tried again: the platform fails"),
        ("throttled-1", "is tried again: the platform limits this device"),
    ],
)
def test_what_the_platform_says_is_explained(server, client, conclusion, token, text):
    message = request(client, server, server.register(client, device_token=token))
    server.handle(DISPATCH, message)
    assert text in conclusion(server, message)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": "status", "status": 503}, "gorush fails: see its log"),
        ({"kind": "status", "status": 429}, "limits us (429)"),
    ],
)
def test_what_gorush_does_is_explained(server, client, conclusion, fields, text):
    message = request(client, server, server.register(client))
    fault(server.context.settings.gorush.url[0], **fields)
    server.handle(DISPATCH, message)
    assert text in conclusion(server, message)


def test_a_wrong_access_token_is_explained(server, client, conclusion):
    registered = server.register(client)
    registered.access_token = "0" * 36
    message = request(client, server, registered)
    server.handle(DISPATCH, message)
    assert "refused: the sender has an old access token" in conclusion(server, message)


def test_a_device_that_is_gone_is_explained(server, client, conclusion):
    registered = server.register(client)
    unregistration = messages.registration(client, server.key, installation_id=registered.installation_id, version=2)
    unregistration.unregister = True
    server.handle(REGISTRATION, messages.register(client, server.key, unregistration))
    message = request(client, server, registered)
    server.handle(DISPATCH, message)
    assert "refused: the device is not registered here" in conclusion(server, message)


def test_a_dead_letter_says_how_to_send_it_again(open_server, client, conclusion, gorush):
    server = open_server(delivery={"max_attempts": 2})
    message = request(client, server, server.register(client))
    fault(gorush, kind="status", status=503)
    server.handle(DISPATCH, message)
    attempt_due(server.context, is_due(server), "")
    server.context.followers.wait()
    text = conclusion(server, message)
    assert text == "no attempt is left: gorush fails: see its log; after the repair: `wakupush dead-letters retry`"


def test_an_expired_push_says_what_held_it_up(server, client, conclusion, gorush):
    message = request(client, server, server.register(client))
    fault(gorush, kind="status", status=503)
    server.handle(DISPATCH, message)
    attempts = is_due(server)
    server.rows("UPDATE deliveries SET expires_at = now() RETURNING 1")
    attempt_due(server.context, attempts, "")
    server.context.followers.wait()
    assert conclusion(server, message) == "it was too old to push: gorush fails: see its log"


def test_a_request_that_came_too_late_is_explained(server, client, conclusion):
    message = request(client, server, server.register(client))
    server.handle(DISPATCH, message, seen=datetime.now(UTC).timestamp() - 3600)
    assert conclusion(server, message).startswith("it was too old to push: it came too late: workers were behind")


def test_a_push_beyond_the_budget_of_its_device_is_explained(open_server, client, conclusion):
    server = open_server(limits={"pushes_per_device_per_minute": 1})
    registered = server.register(client)
    requests = [request(client, server, registered) for _ in range(3)]
    for message in requests:
        server.handle(DISPATCH, message)
    assert "WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE" in conclusion(server, requests[-1])


def test_who_filters_is_hidden_unless_asked_for(run, server, client):
    chat = b"a chat"
    registered = server.register(client, muted_chat_list=[shake256_64(chat)])
    message = request(client, server, registered, chat_id=shake256_64(chat))
    server.handle(DISPATCH, message)
    name = message_hash(SHARD, message).hex()
    user = ["--user", str(client.public_key)]
    for arguments in ([name], ["--last-hour"], user):
        assert "muted" not in run(server, *arguments)
        assert "muted" not in run(server, *arguments, "--json")
    assert "accepted, not pushed by the receiver's choice" in run(server, name)
    assert "for this user or others: the receiver's choice 1;" in run(server, *user)
    for arguments in ([name], ["--last-hour"], user):
        assert "muted_chat" in run(server, *arguments, "--reveal-filters")


def test_a_user_is_found_around_a_time_and_no_other(run, server, client):
    other = PrivateKey.generate()
    pushed, missed = (request(each, server, server.register(each)) for each in (client, other))
    server.handle(DISPATCH, pushed, missed)
    now = datetime.now(UTC)
    output = run(server, "--user", str(client.public_key), "--around", f"{now:%H:%M:%S}", "--json")
    stories = [json.loads(line) for line in output.splitlines()]
    assert [story["conclusion"].split(":")[0] for story in stories] == [
        "the registration is stored, and answered",
        "gorush took it",
    ]
    yesterday = now - timedelta(days=1)
    assert "no message about this user" in run(
        server, "--user", str(client.public_key), "--around", yesterday.isoformat(), expect=1
    )


def test_all_periods_of_pseudonyms_of_a_time_are_read(server, client, monkeypatch):
    pseudonyms = []
    monkeypatch.setattr(history, "messages_of", lambda _, names, *_times: pseudonyms.extend(names) or [])
    window = datetime.now(UTC), timedelta(days=2)
    why.by_user(None, server.context.identity, client.public_key, window, period_days=1)
    assert len(set(pseudonyms)) == 5


def test_of_many_events_the_newest_are_read(server, client, conclusion, monkeypatch):
    monkeypatch.setattr(dead_letters, "_MOST_EVENTS", 2)
    message = request(client, server, server.register(client))
    server.handle(DISPATCH, message)
    assert conclusion(server, message).startswith("gorush took it")


def test_a_push_that_waits_says_what_for(run, server, client, monkeypatch):
    redis, ios = server.context.redis, AppPlatform("", Platform.IOS)
    registered = server.register(client)
    BreakerStore(redis).open_for(ios, 60)
    message = request(client, server, registered)
    server.handle(DISPATCH, message)
    name = message_hash(SHARD, message).hex()
    assert "is a breaker open?" in run(server, name), "without Redis"
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", server.context.settings.redis.url.get_secret_value())
    assert "it waits: the breaker of ios is open" in run(server, name)
    BreakerStore(redis).close(ios)
    assert "no `wakupush worker dispatch` runs" in run(server, name)
    Presence(redis, "worker dispatch", dict).write()
    assert "it waits for gorush's answer, or for a slot" in run(server, name)


def test_the_last_hour_is_summed_up(run, server, client):
    server.handle(DISPATCH, request(client, server, server.register(client, device_token="dead-2")))
    [row] = [line.split() for line in run(server, "--last-hour").splitlines() if "token_unregistered" in line]
    assert row[:5] == ["1", "100.0", "%", "failed", "token_unregistered"]
    assert " ".join(row[5:]) == ADVICE["token_unregistered"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("abc",),
        ("0x04" + "00" * 64,),
        ("00" * 8, "--last-hour"),
        ("--last-hour", "--since", "2h"),
        ("--user", "0x04", "--since", "3d"),
        ("00" * 8, "--around", "10:31"),
        ("--user", "0x04"),
        ("--user", "0x04", "--around", "noon"),
    ],
)
def test_wrong_arguments_are_named(run, server, arguments):
    run(server, *arguments, expect=2)


def test_advice_names_failures_that_exist():
    assert ADVICE.keys() <= {failure.label for failure in Failure}


def test_each_failure_of_a_delivery_or_an_item_has_advice():
    """Those that are answered, but for what `conclusion` says by the kind of the event."""
    silent = {failure.label for failure in Failure if failure.answer.name == "SILENCE"}
    others = {"attempts_exhausted", "delivery_expired", "registration_malformed", "access_token_invalid"}
    others |= {"installation_id_invalid", "apn_topic_invalid", "registration_too_large"}
    assert {failure.label for failure in Failure} - silent - others <= ADVICE.keys()


def test_retried_dead_letter_is_judged_by_its_last_outcome():
    def event(kind, minute, failure=None):
        time = datetime(2026, 11, 24, 10, minute, tzinfo=UTC)
        nothing = dict.fromkeys(("app", "platform", "reason", "attempt", "key_pseudonym"))
        facts = {"queue": "dispatch", "worker": "w", "count": 1, "installation_pseudonym": b"p"}
        return PastEvent(time=time, kind=kind, failure=failure, **nothing, **facts)

    failed = event(EventKind.FAILED, 1, "rate_limited"), event(EventKind.DEAD_LETTER, 1, "rate_limited")
    now = datetime(2026, 11, 24, 11, tzinfo=UTC)
    assert "no attempt is left" in why.conclusion(failed, now)
    assert "gorush took it" in why.conclusion([*failed, event(EventKind.DELIVERED, 30)], now)
