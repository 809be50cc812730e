"""What Postgres guarantees of the ledger: each message is one process's, whatever its timestamp."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from support.rows import ALICE, NOW, entry
from wakupush.model.queues import REGISTRATION
from wakupush.model.waku_message import INT64_MAX, INT64_MIN
from wakupush.postgres import (
    ledger,
)


def test_two_who_enter_the_same_messages_share_them_out(dsn):
    entries = [entry(number) for number in range(200)]

    def enter(part):
        with psycopg.connect(dsn) as connection:
            return ledger.add(connection, part)

    with ThreadPoolExecutor(8) as threads:
        new = list(threads.map(enter, [entries, entries[::-1]] * 4))
    assert sorted(hash_ for part in new for hash_ in part) == [each.hash for each in entries]


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
