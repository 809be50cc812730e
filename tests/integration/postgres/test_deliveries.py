"""What Postgres guarantees of deliveries: added once, leased to one, settled by who holds the lease."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import date, timedelta

import psycopg
import pytest

from support.rows import AT_REST, IOS, NOW, change, delivery, take, take_on
from wakupush.devnet.processes import wait_until
from wakupush.model.deliveries import TRANSITIONS, DeliveryState, RememberedRequest, Settlement
from wakupush.model.failures import Failure
from wakupush.model.registrations import Installation, Unregistration
from wakupush.postgres import deliveries, due, registrations, requests
from wakupush.protocol.sealing import UnsealableError

MONDAY = date(2026, 11, 23)
BOB = Installation(b"b" * 64, b"2" * 16)


def test_delivery_is_added_again_only_after_failure(connection):
    assert take_on(connection, [delivery(1), delivery(2)], {}) == {
        delivery(1).delivery_key,
        delivery(2).delivery_key,
    }
    assert take_on(connection, [delivery(1)], {}) == set()
    deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)])
    assert take_on(connection, [delivery(1)], {}) == set()
    deliveries.settle(
        connection, [Settlement(delivery=delivery(2), state=DeliveryState.FAILED, failure=Failure.TOKEN_REJECTED)]
    )
    assert take_on(connection, [delivery(2)], {}) == {delivery(2).delivery_key}


def test_whose_lease_ended_settles_nothing(connection):
    take_on(connection, [delivery(1)], {}, lease=0)
    [claimed] = due.claim(connection, IOS, limit=10, seconds=60)
    assert (claimed.begun, claimed.failure) == (1, Failure.LEASE_LOST)
    assert deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)]) == []
    assert take(connection, {claimed.delivery_key: 2}) == []
    [(attempt, _)] = take(connection, {claimed.delivery_key: 1})
    expected = delivery(1, attempt=2, lease=attempt.lease, failure=Failure.LEASE_LOST, expires_at=attempt.expires_at)
    assert attempt == expected
    assert take(connection, {claimed.delivery_key: 1}) == []
    assert deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)]) == []
    assert deliveries.settle(
        connection, [Settlement(delivery=attempt, state=DeliveryState.DELIVERED, version=2**64 - 1)]
    )
    row = connection.execute("SELECT state, sealed_content, chat_digest FROM deliveries").fetchone()
    assert row == ("delivered", None, None)


def put_back_long_ago(connection, one):
    take_on(connection, [one], {})
    deliveries.put_back(connection, [one])
    connection.execute("UPDATE deliveries SET next_attempt_at = now() WHERE attempt = 0")


@pytest.mark.parametrize(
    "make_due",
    [
        lambda connection, one: take_on(connection, [one], {}, lease=0),
        put_back_long_ago,
        lambda connection, one: (
            take_on(connection, [one], {}),
            deliveries.settle(connection, [Settlement(delivery=one, state=DeliveryState.PENDING, wait=0)]),
        ),
    ],
    ids=["its lease ended", "put back before its first attempt", "its next attempt is due"],
)
def test_the_platforms_of_due_deliveries_are_named(connection, make_due):
    take_on(connection, [delivery(1)], {})
    assert due.app_platforms(connection) == []
    make_due(connection, delivery(2))
    assert due.app_platforms(connection) == [IOS]
    assert len(due.claim(connection, IOS, limit=2, seconds=60)) == 1
    assert due.app_platforms(connection) == []


def test_due_deliveries_are_claimed_once(dsn, connection):
    take_on(connection, [delivery(number) for number in range(100)], {})
    deliveries.settle(
        connection,
        [
            Settlement(
                delivery=delivery(number),
                state=DeliveryState.PENDING,
                failure=Failure.RATE_LIMITED,
                wait=0 if number < 60 else 60,
            )
            for number in range(100)
        ],
    )

    def claim(_):
        with psycopg.connect(dsn) as own:
            return due.claim(own, IOS, limit=7, seconds=60)

    with ThreadPoolExecutor(8) as threads:
        claimed = [each for part in threads.map(claim, range(24)) for each in part]
    assert sorted(each.delivery_key for each in claimed) == [delivery(number).delivery_key for number in range(60)]
    assert {(each.begun, each.failure) for each in claimed} == {(1, Failure.RATE_LIMITED)}


@pytest.mark.parametrize("keys", [[], [delivery(1).delivery_key, delivery(2).delivery_key, b"\\" * 32]])
def test_failures_come_in_one_trip_too(connection, keys):
    take_on(connection, [delivery(1), delivery(2)], {})
    failure = Failure.TOKEN_REJECTED
    deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.FAILED, failure=failure)])
    expected = {delivery(1).delivery_key: failure} if keys else {}
    assert requests.failed(connection, keys) == requests.failed_within(connection, 1.0, keys) == expected


def test_looking_for_failures_ends_in_time(connection, dsn):
    with psycopg.connect(dsn) as another:
        another.execute("LOCK deliveries")
        with pytest.raises(psycopg.errors.QueryCanceled):
            requests.failed_within(connection, 0.1, [delivery(1).delivery_key])
    assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


@pytest.mark.parametrize("may_old_code_run", [True, False])
def test_old_code_opens_contents_while_it_may_run(connection, may_old_code_run):
    """The form before migration 0108 is not bound to the device."""
    if may_old_code_run:
        connection.execute("DELETE FROM schema_migrations WHERE name = '0108_post_seals'")
    take_on(connection, [delivery(1)], {})
    [(key, sealed)] = connection.execute("SELECT delivery_key, sealed_content FROM deliveries").fetchall()
    assert AT_REST.open_content(key, delivery(1).installation, sealed) == (b"chat", b"message")
    with nullcontext() if may_old_code_run else pytest.raises(UnsealableError):
        AT_REST.open_content(key, BOB, sealed)


def test_a_device_of_two_users_is_told_the_right_one(connection):
    """The notification beyond a device's limit has one key for all users who registered the device."""
    take_on(connection, [delivery(1)], {})
    deliveries.settle(
        connection, [Settlement(delivery=delivery(1), state=DeliveryState.FAILED, failure=Failure.TOKEN_REJECTED)]
    )
    of_another = replace(delivery(1), installation=BOB)
    assert take_on(connection, [of_another], {}, lease=0)
    [claimed] = due.claim(connection, IOS, limit=10, seconds=60)
    [(attempt, _)] = take(connection, {claimed.delivery_key: claimed.begun})
    assert (attempt.installation, attempt.chat_id) == (BOB, b"chat")


def test_claims_take_the_newest_and_the_oldest(connection):
    take_on(connection, [delivery(number) for number in range(6)], {})
    retries = [Settlement(delivery=delivery(number), state=DeliveryState.PENDING, wait=0) for number in (0, 1)]
    deliveries.settle(connection, retries)
    deliveries.put_back(connection, [delivery(number) for number in (2, 3, 4, 5)])
    age = "UPDATE deliveries SET next_attempt_at = now() - %s * interval '1 hour' WHERE delivery_key = %s"
    connection.cursor().executemany(age, [(30 - number, delivery(number).delivery_key) for number in range(5)])
    claimed = [due.claim(connection, IOS, limit=2, seconds=60) for _ in range(3)]
    keys = [{each.delivery_key for each in part} for part in claimed]
    assert keys == [{delivery(n).delivery_key for n in part} for part in ((4, 0), (3, 1), (2,))]


@pytest.mark.parametrize("kind", ["retry", "put back", "lapsed"])
def test_nothing_due_starves_behind_new_deliveries(connection, kind):
    old, new = range(8), iter(range(8, 100))
    take_on(connection, [delivery(number) for number in old], {}, lease=0 if kind == "lapsed" else 60)
    if kind == "retry":
        retries = [Settlement(delivery=delivery(n), state=DeliveryState.PENDING, wait=0) for n in old]
        deliveries.settle(connection, retries)
    elif kind == "put back":
        deliveries.put_back(connection, [delivery(number) for number in old])
    connection.execute("UPDATE deliveries SET next_attempt_at = now() - interval '1 hour' WHERE state = 'pending'")
    claimed = set()
    for _ in range(4):
        more = [delivery(next(new)) for _ in range(4)]
        take_on(connection, more, {})
        deliveries.put_back(connection, more)
        connection.execute(
            "UPDATE deliveries SET next_attempt_at = now() WHERE next_attempt_at < now() + interval '2 s'"
            " AND next_attempt_at > now()"
        )
        claimed |= {each.delivery_key for each in due.claim(connection, IOS, limit=4, seconds=60)}
    assert {delivery(number).delivery_key for number in old} <= claimed
    assert len(claimed) == 16


def test_expired_deliveries_end_without_an_attempt(connection):
    take_on(connection, [delivery(number) for number in range(5)], {})
    settlements = [Settlement(delivery=delivery(n), state=DeliveryState.PENDING, wait=600) for n in range(4)]
    deliveries.settle(connection, settlements)
    assert due.expired(connection, 10) == 0
    connection.execute("UPDATE deliveries SET expires_at = now() WHERE delivery_key <> %s", [delivery(3).delivery_key])
    assert (due.expired(connection, 10), due.expired(connection, 2)) == (3, 2)
    ends = [settlement for _ in range(3) for settlement in deliveries.expire(connection, 2)]
    assert {(each.delivery.delivery_key, each.state, each.failure) for each in ends} == {
        (delivery(n).delivery_key, DeliveryState.EXPIRED, Failure.DELIVERY_EXPIRED) for n in range(3)
    }
    assert len(ends) == 3
    rows = connection.execute(
        "SELECT state, attempt, sealed_content IS NOT NULL, finished_at IS NOT NULL, count(*) FROM deliveries"
        " GROUP BY 1, 2, 3, 4 ORDER BY 1"
    ).fetchall()
    assert rows == [("expired", 1, True, True, 3), ("pending", 1, True, False, 1), ("posting", 1, True, False, 1)]


def test_an_abandoned_claim_counts_no_attempt(connection):
    take_on(connection, [delivery(1)], {})
    deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.PENDING, wait=0)])
    for _ in range(3):
        assert [each.begun for each in due.claim(connection, IOS, limit=1, seconds=0)] == [1]
    [claimed] = due.claim(connection, IOS, limit=1, seconds=60)
    assert due.claim(connection, IOS, limit=1, seconds=60) == []
    assert take(connection, {claimed.delivery_key: 1})


@pytest.mark.parametrize("state", sorted(TRANSITIONS[DeliveryState.POSTING]))
def test_every_transition_out_of_posting_is_possible(connection, state):
    take_on(connection, [delivery(1)], {})
    wait = 1.0 if state is DeliveryState.PENDING else None
    assert deliveries.settle(connection, [Settlement(delivery=delivery(1), state=state, wait=wait)])


def test_admitted_requests(connection):
    ids = [os.urandom(32) for _ in range(3)]
    take_on(connection, [], {ids[0]: RememberedRequest([True, False]), ids[1]: RememberedRequest([])})
    requests.correct(connection, {ids[0]: RememberedRequest([False, False])})
    remembered_requests, over = requests.admitted(connection, ids)
    assert ({id_: request.succeeded for id_, request in remembered_requests.items()}, over) == (
        {ids[0]: [False, False], ids[1]: []},
        set(),
    )


def in_week(connection, message_id, week, *, succeeded="1", expired=False):
    connection.execute(
        "INSERT INTO admitted_requests (message_id, week, succeeded, expired) VALUES (%s, %s, %s, %s)",
        [message_id[:16], week, succeeded, expired],
    )


def test_of_two_weeks_the_newer_counts(connection):
    message_id = os.urandom(32)
    in_week(connection, message_id, MONDAY, succeeded="10")
    in_week(connection, message_id, MONDAY - timedelta(days=7), succeeded="11")
    assert requests.admitted(connection, [message_id]) == (
        {message_id: RememberedRequest([True, False], MONDAY)},
        set(),
    )


@pytest.mark.parametrize("weeks", [1, -1])
def test_over_wins_in_whatever_week(connection, weeks):
    message_id = os.urandom(32)
    in_week(connection, message_id, MONDAY)
    in_week(connection, message_id, MONDAY - timedelta(weeks=weeks), succeeded="", expired=True)
    assert requests.admitted(connection, [message_id]) == ({}, {message_id})


def test_a_correction_adds_no_row(connection):
    id_, missing_id = os.urandom(32), os.urandom(32)
    in_week(connection, id_, MONDAY - timedelta(days=7))
    requests.correct(connection, {id_: RememberedRequest([False]), missing_id: RememberedRequest([False])})
    rows = connection.execute("SELECT message_id, week, succeeded FROM admitted_requests").fetchall()
    assert rows == [(id_[:16], MONDAY - timedelta(days=7), "0")]


def blocked(dsn, lock, work, row):
    """Say whether a row is free while some work waits for another row, which `lock` holds."""
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as threads:
        holder.execute(lock)
        working = threads.submit(work, other)
        pid = other.info.backend_pid
        waiting = "SELECT true FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        with psycopg.connect(dsn, autocommit=True) as looking:
            wait_until(lambda: looking.execute(waiting, [pid]).fetchone(), timeout=60, what="the work waits")
            try:
                looking.execute(f"SELECT FROM deliveries WHERE delivery_key = {row} FOR UPDATE NOWAIT")
            except psycopg.errors.LockNotAvailable:
                return True
            finally:
                holder.rollback()
                working.result()
        return False


@pytest.mark.parametrize("work", ["take", "unregister"])
def test_deliveries_are_locked_in_the_order_of_keys(dsn, connection, work):
    take_on(connection, [delivery(2)], {})  # first on its page, too
    take_on(connection, [delivery(1)], {})
    deliveries.put_back(connection, [delivery(1), delivery(2)])
    first, second = (f"decode('{delivery(number).delivery_key.hex()}', 'hex')" for number in (1, 2))

    def do(own):
        if work == "take":
            take(own, {delivery(2).delivery_key: 0, delivery(1).delivery_key: 0})
        else:
            registrations.store(
                own, [replace(change(9), registration=Unregistration(installation_id="phone", version=9))], AT_REST
            )

    lock = f"SELECT FROM deliveries WHERE delivery_key = {first} FOR UPDATE"
    assert not blocked(dsn, lock, do, second)


def test_delivery_expires_when_its_notification_does(connection):
    take_on(connection, [delivery(1, expires_at=NOW.timestamp() + 1234)], {})
    assert connection.execute("SELECT expires_at - %s FROM deliveries", [NOW]).fetchone() == (timedelta(seconds=1234),)
