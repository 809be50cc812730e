"""What Postgres guarantees of the ledger: each message is one process's, whatever its timestamp."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from support.rows import ALICE, NOW, entry
from wakupush.devnet.processes import wait_until
from wakupush.model.quarantine import QuarantineSelection
from wakupush.model.queues import REGISTRATION
from wakupush.model.waku_message import INT64_MAX, INT64_MIN
from wakupush.postgres import ledger, quarantine


@pytest.mark.parametrize("days", [0, 1, 2, 3, 30])
def test_concurrent_entries_are_disjoint(dsn, days):
    stamp = int((NOW - timedelta(days=days)).timestamp() * 1e9)
    entries = [entry(number, stamp if number % 3 else 0) for number in range(200)]

    def enter(part):
        with psycopg.connect(dsn) as connection:
            return ledger.add(connection, part)

    with ThreadPoolExecutor(8) as threads:
        new = list(threads.map(enter, [entries, entries[::-1]] * 4))
    assert sorted(hash_ for part in new for hash_ in part) == [each.hash for each in entries]


def test_a_message_of_yesterday_is_known_the_day_after(dsn, connection):
    """It had one row when it was young; it comes again at the moment from which on it has two."""
    message = entry(1, int((NOW - timedelta(days=2)).timestamp() * 1e9))
    with psycopg.connect(dsn) as young, psycopg.connect(dsn) as old, ThreadPoolExecutor(1) as threads:
        row = [message.hash, message.message.timestamp]
        young.execute("INSERT INTO ledger (message_hash, message_timestamp) VALUES (%s, %s)", row)
        again = threads.submit(ledger.add, old, [message])
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: connection.execute(waiting).fetchone()[0], timeout=60, what="the other one waits")
        young.commit()
        assert again.result(timeout=60) == set()
        old.commit()
    assert not ledger.add(connection, [message])
    assert ledger.known(connection, [message]) == {message.hash}


@pytest.mark.parametrize(
    "timestamp",
    [INT64_MIN, -1, 0, INT64_MAX, int(NOW.timestamp() * 1e9)],
    ids=["min", "negative", "zero", "max", "now"],
)
def test_the_ledger_takes_any_timestamp(connection, timestamp):
    assert ledger.add(connection, [entry(1, timestamp)])
    assert not ledger.add(connection, [entry(1, timestamp)])


def test_quarantined_messages_count_as_processed(connection):
    ledger.count_attempt(connection, entry(1))
    ledger.count_attempt(connection, entry(1))
    ledger.refund_attempt(connection, entry(1))
    assert ledger.attempts(connection, [entry(1), entry(2)]) == {entry(1).hash: 1}
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="ValueError", attempts=3, owner=ALICE)
    assert ledger.attempts(connection, [entry(1)]) == {}
    assert not ledger.add(connection, [entry(1)])
    assert connection.execute("SELECT payload FROM quarantine").fetchone() == (b"\x00payload",)


@pytest.mark.parametrize("timestamp", [0, 1, int(NOW.timestamp() * 1e9)], ids=["zero", "past", "now"])
def test_a_retried_message_is_not_in_the_ledger(connection, timestamp):
    message = entry(1, timestamp)
    ledger.quarantine(connection, REGISTRATION, message, reason="ValueError", attempts=3, owner=None)
    [(_, queue, retried)] = quarantine.retry(connection, QuarantineSelection(keys=[message.hash]), None)
    assert (queue, retried.hash) == (REGISTRATION, message.hash)
    assert not ledger.known(connection, [message])
    assert ledger.add(connection, [message])
