"""Which device tokens die of what, and when so many are bad that none does."""

import psycopg
import pytest

from support import rows
from support.feedback import body
from support.served import request, rewrapped
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.postgres import token_trials
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import metrics
from wakupush.server.beat import deliveries
from wakupush.server.delivery import tokens, webhook

IOS, ANDROID = Platform.IOS, Platform.ANDROID


def ask(server, client, registered):
    """Ask for a push and return what the sender is told."""
    server.handle(DISPATCH, request(client, server, registered))
    [[outcome]] = server.outcomes(client)
    return outcome


def is_dead(server):
    [(dead,)] = server.rows("SELECT token_died_at IS NOT NULL FROM registrations")
    return dead


def count(server, platform, *, good=0, bad=0, age=0):
    """Put tokens that were tried into the window, so many seconds ago."""
    server.rows(
        "INSERT INTO app_token_trials"
        " SELECT '', %s, now() - %s * interval '1 second', 100 + count(*), %s, %s FROM app_token_trials RETURNING 1",
        *(platform, age, good + bad, bad),
    )


def test_only_a_higher_version_brings_a_device_back(server, client):
    first = messages.registration(client, server.key, device_token="dead-phone")
    device = first.installation_id
    second = messages.registration(
        client,
        server.key,
        device_token="dead-phone",
        version=2,
        installation_id=device,
        access_token=first.access_token,
    )
    by_version = {1: messages.register(client, server.key, first), 2: messages.register(client, server.key, second)}
    for each in by_version.values():
        server.handle(REGISTRATION, each)
    assert server.outcomes(client) == ["success", "success"]
    assert ask(server, client, second) == "NOT_REGISTERED"
    assert is_dead(server)

    def come_again(message):
        server.handle(REGISTRATION, rewrapped(message, server))
        return server.outcomes(client)

    # Its own repeat tells the client to come with a higher version; no copy out of an archive revives it.
    assert [come_again(message) for message in (by_version[2], by_version[1], by_version[2])] == [
        ["VERSION_MISMATCH"]
    ] * 3
    assert is_dead(server)
    third = messages.registration(
        client, server.key, device_token="new-phone", version=3, installation_id=device, access_token=first.access_token
    )
    server.handle(REGISTRATION, messages.register(client, server.key, third))
    assert server.outcomes(client) == ["success"]
    assert not is_dead(server)
    assert ask(server, client, third) == "success"
    assert come_again(by_version[2]) == ["VERSION_MISMATCH"]
    assert server.rows("SELECT version FROM registrations") == [(3,)]


@pytest.mark.parametrize("platform", Platform)
def test_three_doubts_kill_a_token_until_it_registers_again(server, client, platform):
    fields = {"device_token": "bad-phone", "token_type": platform, "apn_topic": "a" if platform is IOS else ""}
    content = server.register(client, **fields)
    count(server, platform, good=1)
    assert [ask(server, client, content) for _ in range(3)] == ["INTERNAL_ERROR"] * 3
    assert server.events("token_died") == [("token_rejected", None)]
    assert ask(server, client, content) == "NOT_REGISTERED"
    assert len(server.pushes()) == 3
    server.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert server.answers(client) == []
    again = server.renew(client, content, **fields | {"device_token": "good"})
    assert ask(server, client, again) == "success"
    server.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert len(server.answers(client)) == 1


def test_doubts_of_one_task_count_one_by_one(server, client):
    """And take one statement, whatever their number: a stranger chooses it."""
    content = server.register(client, device_token="bad-phone")
    other = PrivateKey.generate()
    server.register(other, device_token="bad-other")
    count(server, IOS, good=1)
    server.handle(DISPATCH, *(request(client, server, content) for _ in range(2)))
    assert server.rows("SELECT cardinality(suspected_at) FROM registrations ORDER BY 1") == [(2,), (None,)]
    server.handle(DISPATCH, *(request(client, server, content) for _ in range(2)))
    assert server.events("token_died") == [("token_rejected", None)]
    assert server.rows("SELECT token_died_at IS NULL FROM registrations ORDER BY 1") == [(False,), (True,)]


def test_a_success_clears_suspicions(server, client):
    content = server.register(client)
    for token in ("bad", "bad", "good", "bad", "bad"):
        server.reroute(token)
        ask(server, client, content)
    assert not is_dead(server)
    ask(server, client, content)
    assert is_dead(server)


def test_suspicions_are_forgotten_after_a_day(server, client):
    content = server.register(client, device_token="bad")
    count(server, IOS, good=1)
    for _ in range(2):
        ask(server, client, content)
    server.rows(
        "UPDATE registrations SET suspected_at = ARRAY(SELECT at - interval '1 day' FROM unnest(suspected_at) AS at)"
        " RETURNING 1"
    )
    for _ in range(2):
        ask(server, client, content)
    assert not is_dead(server)
    assert server.rows("SELECT cardinality(suspected_at) FROM registrations") == [(2,)]


def test_suspicions_are_those_of_a_version(server, client):
    content = server.register(client, device_token="bad")
    count(server, IOS, good=1)
    for _ in range(2):
        ask(server, client, content)
    again = server.renew(client, content, device_token="bad")
    for _ in range(2):
        ask(server, client, again)
    assert not is_dead(server)


def test_too_many_bad_tokens_stop_marking_until_the_share_falls(server, client):
    content = server.register(client, device_token="dead-phone")
    count(server, IOS, good=70, bad=30)
    assert ask(server, client, content) == "INTERNAL_ERROR"
    assert not is_dead(server)
    assert server.events("failed") == [("token_doubted", None)]
    assert server.events("token_died") == []
    assert deliveries.watch_marking(server.context) == {rows.IOS}
    assert metrics.TOKEN_MARKING_STOPPED.labels("", "ios")._value.get() == 1
    assert metrics.TOKEN_MARKING_STOPPED.labels("", "android")._value.get() == 0
    count(server, IOS, good=100)
    assert deliveries.watch_marking(server.context) == set()
    assert metrics.TOKEN_MARKING_STOPPED.labels("", "ios")._value.get() == 0
    assert ask(server, client, content) == "NOT_REGISTERED"
    assert is_dead(server)


def test_nothing_is_suspected_while_marking_is_stopped(server, client):
    content = server.register(client, device_token="bad-phone")
    count(server, IOS, good=1, bad=100)
    assert [ask(server, client, content) for _ in range(4)] == ["INTERNAL_ERROR"] * 4
    assert server.rows("SELECT suspected_at FROM registrations") == [(None,)]


def test_the_alarm_is_an_error_in_the_log(server, monkeypatch):
    lines = []
    monkeypatch.setattr(
        deliveries, "log", type("Log", (), {"error": lambda _, event, **facts: lines.append((event, facts))})()
    )
    count(server, ANDROID, bad=100)
    deliveries.watch_marking(server.context)
    assert lines == [("token_marking_stopped", {"app": "", "platform": "android"})]


def test_alarm_ends_with_its_app(server):
    gauge = metrics.TOKEN_MARKING_STOPPED
    gauge.labels("gone", "ios").set(1)
    deliveries.watch_marking(server.context)
    assert "gone" not in {sample.labels["app"] for family in gauge.collect() for sample in family.samples}


def test_a_few_bad_tokens_do_not_stop_marking(server, client):
    content = server.register(client, device_token="dead-phone")
    count(server, IOS, good=9, bad=30)
    assert ask(server, client, content) == "NOT_REGISTERED"
    assert is_dead(server)


@pytest.mark.parametrize(
    ("counts", "stops"),
    [
        # A good day does not hide that everything has been failing of late.
        ([{"good": 100_000, "age": 7200}, {"bad": 60}], True),
        # What was bad hours ago still counts if it is much of the day, and not if it is little.
        ([{"good": 100, "age": 7200}, {"bad": 60, "age": 5400}, {"good": 60}], True),
        ([{"good": 1000, "age": 7200}, {"bad": 60, "age": 5400}, {"good": 60}], False),
        ([{"bad": 1000, "age": 90_000}, {"good": 60}], False),
    ],
)
def test_the_window_and_its_end(server, counts, stops):
    for each in counts:
        count(server, IOS, **each)
    assert deliveries.watch_marking(server.context) == ({rows.IOS} if stops else set())


def test_every_verdict_of_a_platform_is_counted_and_nothing_else(server, client):
    content = server.register(client)
    for token in ("good", "bad", "unavailable", "credentials", "dead"):
        server.reroute(token)
        ask(server, client, content)
    with server.context.pool.connection() as connection:
        assert {(share.tried, share.bad) for share in token_trials.shares(connection)} == {(3, 2)}


def test_the_brake_can_be_switched_off(open_server, client):
    server = open_server(tokens={"brake_share": 1})
    count(server, IOS, bad=100)
    content = server.register(client, device_token="dead-phone")
    assert ask(server, client, content) == "NOT_REGISTERED"


@pytest.mark.parametrize("failure", Failure)
def test_a_doubted_platform_cannot_kill_tokens(failure):
    belief = tokens.believed(failure, rows.IOS, {rows.IOS})
    assert belief is (Failure.TOKEN_DOUBTED if failure is Failure.TOKEN_UNREGISTERED else failure)
    assert tokens.believed(failure, rows.IOS, {rows.ANDROID}) is failure


def proven(server):
    return server.rows("SELECT proven FROM registrations ORDER BY proven")


def together(server, contents):
    """Ask for pushes to several devices at once, and return how large the posts were that they went out in."""
    server.rows("DELETE FROM delivery_events RETURNING 1")
    server.handle(DISPATCH, *(request(one, server, content) for one, content in contents.items()))
    sizes = "SELECT batch_size FROM delivery_history WHERE kind = 'attempt'"
    wait_until(lambda: len(server.rows(sizes)) == len(contents), timeout=60, what="all are posted")
    server.outcomes(*contents)
    return {size for (size,) in server.rows(sizes)}


def test_invented_tokens_die_for_themselves_and_stop_nothing(open_server, client, monkeypatch):
    monkeypatch.setattr("wakupush.server.delivery.tokens.BRAKE_MINIMUM", 3)
    server = open_server()
    content = server.register(client)
    assert ask(server, client, content) == "success"
    for number in range(8):
        stranger = PrivateKey.generate()
        invented = server.register(stranger, device_token=f"dead-{number}")
        assert ask(server, stranger, invented) == "NOT_REGISTERED"
    assert server.rows("SELECT count(*) FROM registrations WHERE token_died_at IS NOT NULL") == [(8,)]
    assert deliveries.watch_marking(server.context) == set()
    server.reroute("dead")
    assert ask(server, client, content) == "NOT_REGISTERED"


def test_tokens_that_were_once_delivered_to_stop_marking(open_server, monkeypatch):
    monkeypatch.setattr("wakupush.server.delivery.tokens.BRAKE_MINIMUM", 3)
    server = open_server(tokens={"brake_share": 0.4})
    contents = {client: server.register(client) for client in (PrivateKey.generate() for _ in range(4))}
    assert [ask(server, *each) for each in contents.items()] == ["success"] * 4
    server.reroute("dead")
    outcomes = [ask(server, *each) for each in contents.items()]
    assert outcomes == ["NOT_REGISTERED"] * 3 + ["INTERNAL_ERROR"], "from 3 of 7 on it holds"
    assert deliveries.watch_marking(server.context) == {rows.IOS}


def test_only_a_proven_token_keeps_posts_single(server):
    contents = {client: server.register(client) for client in (PrivateKey.generate() for _ in range(3))}
    stranger = PrivateKey.generate()
    assert ask(server, stranger, server.register(stranger, device_token="dead")) == "NOT_REGISTERED"
    assert together(server, contents) == {3}
    server.reroute("throttled")
    assert together(server, contents) == {3}
    assert together(server, contents) == {1}


def test_a_push_proves_a_version_if_nothing_failed_beside_it(server, client):
    content = server.register(client, device_token="a-phone")
    stranger = PrivateKey.generate()
    invented = server.register(stranger, device_token="dead")
    assert proven(server) == [(False,)] * 2
    # Of two failures gorush may lose one.
    assert together(server, {client: content, stranger: invented}) == {2}
    assert proven(server) == [(False,)] * 2
    with server.context.pool.connection() as connection:
        assert token_trials.shares(connection) == []
    assert ask(server, client, content) == "success"
    assert proven(server) == [(False,), (True,)]
    server.renew(client, content)
    assert proven(server) == [(False,)] * 2


@pytest.mark.parametrize(
    ("fields", "stays"),
    [({}, True), ({"device_token": "another-phone"}, False), ({"apn_topic": "org.example.other"}, False)],
)
def test_a_new_version_for_the_same_device_stays_proven(server, client, fields, stays):
    content = server.register(client, device_token="a-phone")
    assert ask(server, client, content) == "success"
    server.renew(client, content, **({"device_token": "a-phone"} | fields))
    assert proven(server) == [(stays,)]


def test_a_dead_device_that_registers_anew_is_not_proven(server, client):
    content = server.register(client, device_token="a-phone")
    assert ask(server, client, content) == "success"
    server.rows("UPDATE registrations SET token_died_at = now() RETURNING 1")
    server.renew(client, content, device_token="a-phone")
    assert proven(server) == [(False,)]


def test_an_unregistration_forgets_the_device(server, client):
    content = server.register(client)
    assert ask(server, client, content) == "success"
    server.renew(client, content, unregister=True)
    assert server.rows("SELECT device_digest, proven FROM registrations") == [(None, None)]


def test_a_device_is_marked_proven_once_and_not_at_each_push(server, client):
    content = server.register(client)
    rows = []
    for _ in range(3):
        assert ask(server, client, content) == "success"
        rows += server.rows("SELECT ctid, xmin FROM registrations")
    assert len(set(rows)) == 1


def test_an_unproven_token_is_doubted_only_beside_successes(server, client):
    content = server.register(client, device_token="bad")
    assert [ask(server, client, content) for _ in range(4)] == ["INTERNAL_ERROR"] * 4
    assert server.rows("SELECT suspected_at FROM registrations") == [(None,)], "it may be the server's setup"
    count(server, IOS, good=1)
    assert [ask(server, client, content) for _ in range(4)] == ["INTERNAL_ERROR"] * 3 + ["NOT_REGISTERED"]


def test_many_workers_count_what_they_tried(open_server):
    server = open_server(gorush={"concurrency": 16})
    clients = [PrivateKey.generate() for _ in range(8)]
    contents = [server.register(one) for one in clients]
    futures = [
        server.threads.submit(server.handle, DISPATCH, request(one, server, content))
        for one, content in zip(clients, contents, strict=True)
    ]
    for future in futures:
        future.result()
    with server.context.pool.connection() as connection:
        assert {(share.tried, share.bad) for share in token_trials.shares(connection)} == {(8, 0)}


@pytest.mark.parametrize("by_webhook", [False, True])
def test_a_judged_device_is_locked_before_its_delivery(server, client, dsn, by_webhook):
    content = server.register(client, device_token="slow-400" if by_webhook else "slow-400-dead")
    server.rows("UPDATE registrations SET proven = true RETURNING 1")
    asking = server.threads.submit(server.handle, DISPATCH, request(client, server, content))
    posting = "SELECT delivery_key FROM deliveries WHERE state = 'posting'"
    wait_until(lambda: server.rows(posting), timeout=60, what="the delivery is being posted")
    with psycopg.connect(dsn) as unregistering:
        unregistering.execute("SELECT FROM registrations FOR UPDATE")
        if by_webhook:
            [(key,)] = server.rows(posting)
            webhook.take(server.context.pool, body(key))
        waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_until(lambda: server.rows(waiting), timeout=60, what="the outcome waits")
        # Unregistering locks the deliveries after the device, and must not meet who waits for the device.
        unregistering.execute("SELECT FROM deliveries FOR UPDATE NOWAIT")
    asking.result()
    wait_until(lambda: not server.rows(posting), timeout=60, what="the outcome is stored")
    assert server.rows("SELECT state FROM deliveries") == [("failed",)]
