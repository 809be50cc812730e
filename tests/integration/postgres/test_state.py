"""What Postgres guarantees: the version check, leases, the ledger, retention."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from wakupush.devnet.parts.processes import wait_until
from wakupush.model.answers import SealedAnswer
from wakupush.model.deliveries import TRANSITIONS, Delivery, DeliveryState, Settlement
from wakupush.model.entries import Entry
from wakupush.model.events import FIELDS, OUTCOMES, Event, EventKind, history
from wakupush.model.failures import Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform, TokenType
from wakupush.model.queues import REGISTRATION
from wakupush.model.registrations import Change, Installation, Preferences, Registration, Unregistration
from wakupush.model.retention import RetentionRule
from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotificationQueryResponse
from wakupush.postgres import (
    answers,
    deliveries,
    due,
    events,
    ledger,
    maintenance,
    old_code,
    query_topics,
    rebuilding,
    registrations,
    requests,
    shadow,
    token_trials,
)
from wakupush.postgres.migrations import runner
from wakupush.postgres.registrations import OutdatedError
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.query import encode_response
from wakupush.runtime.settings import RetentionSettings
from wakupush.server.schedule.prune import rules

ALICE = Installation(b"a" * 64, b"1" * 16)
AT_REST = Identity.of(PrivateKey(b"\1" * 32)).at_rest
NOW = datetime.now(UTC)
TIME_TO_LIVE = dict.fromkeys(NotificationType, 60)


def registration(version: int, **fields) -> Registration:
    return Registration(
        **{
            "installation_id": "phone",
            "version": version,
            "token_type": TokenType.APN,
            "device_token": f"token-{version}",
            "access_token": "access",
            "grant": b"g" * 65,
            "enabled": True,
            "apn_topic": "app",
            "allow_from_contacts_only": False,
            "block_mentions": False,
            "allowed_key_list": (b"key", b""),
            "blocked_chat_list": (),
            "muted_chat_list": (b"m" * 64,),
            "allowed_mentions_chat_list": (),
            **fields,
        }
    )


def change(version: int, installation=ALICE, **fields) -> Change:
    return Change(installation, version.to_bytes(16, "big"), registration(version, **fields))


def unregistration(version: int) -> Change:
    return Change(ALICE, b"u" * 16, Unregistration(installation_id="phone", version=version))


def delivery(number: int, **fields) -> Delivery:
    return Delivery(
        **{
            "delivery_key": number.to_bytes(32, "big"),
            "installation": ALICE,
            "platform": Platform.IOS,
            "notification_type": NotificationType.MESSAGE,
            "chat_id": b"chat",
            "message": b"message",
            "attempt": 1,
            "lease": UUID(int=number),
            "task_id": f"task-{number}",
            "trace_id": f"trace-{number}",
            "seen": NOW.timestamp(),
            **fields,
        }
    )


def reached(connection):
    """Return where the next attempt of a delivery to Alice goes."""
    sent = delivery(99)
    take_on(connection, [sent], {})
    deliveries.put_back(connection, [sent])
    [(_, device)] = take(connection, {sent.delivery_key: 0})
    connection.execute("DELETE FROM deliveries WHERE delivery_key = %s", [sent.delivery_key])
    return device and device.target


def store(connection, changes):
    registrations.store(connection, changes, AT_REST, clear=old_code.may_run(connection))


def devices(connection, key_hashes):
    return registrations.devices(connection, key_hashes, AT_REST)


def receiver(connection, *, chat_id=b"", author=b""):
    """Return what is known of Alice's device for a notification that names these."""
    address = AT_REST.address(ALICE, access_token="access", chat_id=chat_id, author=author)
    other = replace(address, installation=Installation(b"b" * 64, b"1" * 16))
    found = requests.receivers(connection, [other, address], AT_REST, keep=60)
    assert found.keys() <= {address}
    return found.get(address)


def take_on(connection, added, succeeded, lease=60):
    options = {"lease": lease, "time_to_live": TIME_TO_LIVE, "at_rest": AT_REST, "clear": old_code.may_run(connection)}
    return requests.take_on(connection, added, succeeded, **options)


def take(connection, claimed):
    return deliveries.take(connection, claimed, seconds=60, at_rest=AT_REST)


def entry(number: int, timestamp: int = 0) -> Entry:
    message = WakuMessage(payload=b"\x00payload", content_topic="/waku/1/0x00000000/rfc26", timestamp=timestamp)
    return Entry("/waku/2/rs/16/32", number.to_bytes(32, "big"), NOW.timestamp(), message)


# Migrations


def test_migrations_that_start_at_once_run_once(empty_dsn):
    def migrate(_):
        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            return runner.migrate(connection)

    with ThreadPoolExecutor(8) as threads:
        applied = sorted(threads.map(migrate, range(8)), key=len)
    assert applied[-1] == [migration.name for migration in runner.migrations()]
    assert applied[:-1] == [[]] * 7


def test_a_migration_that_was_changed_is_refused(connection):
    connection.execute("UPDATE schema_migrations SET checksum = 'other'")
    with pytest.raises(runner.ChangedMigrationError, match="0001_pre_initial"):
        runner.migrate(connection)


# Registrations


def test_only_newer_versions_are_stored(connection):
    store(connection, [change(5)])
    with pytest.raises(OutdatedError):
        store(connection, [change(5)])
    with pytest.raises(OutdatedError):
        store(connection, [unregistration(4)])
    store(connection, [change(2**64 - 1)])
    assert registrations.stored(connection, [ALICE])[ALICE].version == 2**64 - 1


def test_of_many_who_store_at_once_the_newest_version_stays(dsn):
    def try_to_store(version):
        with psycopg.connect(dsn) as connection:
            try:
                store(connection, [change(version)])
            except OutdatedError:
                connection.rollback()
                return None
        return version

    with ThreadPoolExecutor(16) as threads:
        stored = [version for version in threads.map(try_to_store, [*range(1, 31), *range(30, 0, -1)]) if version]
    assert len(stored) == len(set(stored))
    with psycopg.connect(dsn) as connection:
        assert registrations.stored(connection, [ALICE])[ALICE].version == 30 == max(stored)


def test_unregistering_leaves_key_hash_and_version_alone(connection):
    store(connection, [change(1)])
    take_on(connection, [delivery(1), delivery(2)], {})
    deliveries.settle(
        connection, [Settlement(delivery=delivery(2), state=DeliveryState.DEAD_LETTER, failure=Failure.DEVICE_GONE)]
    )
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="x", attempts=3, owner=ALICE)
    with connection.transaction():
        store(connection, [unregistration(2)])
    row = connection.execute("SELECT * FROM registrations").fetchone()
    assert [value for value in row if value is not None] == [b"a" * 64, b"1" * 16, 2, b"u" * 16, False, 2]
    for table in ("deliveries", "quarantine"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert devices(connection, [ALICE.key_hash]) == {}
    assert receiver(connection) is None
    assert reached(connection) is None


def test_what_queries_requests_and_deliveries_read(connection):
    store(connection, [change(3, blocked_chat_list=(b"b", b"", b"c"), allow_from_contacts_only=True)])
    [device] = devices(connection, [ALICE.key_hash])[ALICE.key_hash]
    assert (device.version, device.access_token, device.allowed_key_list) == (3, "access", (b"key", b""))
    known = receiver(connection, chat_id=b"m" * 64, author=b"b")
    assert known.preferences == Preferences(
        token_fits=True, token_died=False, enabled=True, author_blocked=True, chat_muted=True
    )
    assert receiver(connection, chat_id=b"", author=b"m" * 64).preferences.chat_blocked
    assert known.contacts_only
    assert known.target.platform is Platform.IOS
    assert known.target.device_token == "token-3"
    assert reached(connection) == known.target


@pytest.mark.parametrize("contacts_only", [True, False])
@pytest.mark.parametrize("keys", [(), (b"",) * 100, (b"x" * 256,) * 100, (b"x", b"y" * 127, b"z" * 128)])
def test_an_answer_is_never_larger_than_was_told_before(connection, contacts_only, keys):
    longest = {"installation_id": "urn:uuid:" + "0" * 36, "access_token": "urn:uuid:" + "0" * 36}
    lists = {"allow_from_contacts_only": contacts_only, "allowed_key_list": keys}
    for number in range(3):
        installation = Installation(ALICE.key_hash, bytes([number]) * 16)
        store(connection, [change(2**64 - 1, installation, **longest, **lists)])
    told = registrations.answer_bytes(connection, [ALICE.key_hash, b"b" * 64])
    response = encode_response(b"", devices(connection, [ALICE.key_hash])[ALICE.key_hash])
    size = sum(info.ByteSize() + 5 for info in PushNotificationQueryResponse.FromString(response).info)
    assert told.keys() == {ALICE.key_hash}
    assert size <= told[ALICE.key_hash] < size + 3 * (300 + 5 * len(keys))


def test_a_token_dies_only_for_the_version_that_was_tried(connection):
    store(connection, [change(1)])
    store(connection, [change(2)])
    assert registrations.token_died(connection, [(ALICE, 1)]) == set()
    assert registrations.token_died(connection, [(ALICE, 2)]) == {ALICE}
    assert registrations.token_died(connection, [(ALICE, 2)]) == set()
    assert reached(connection) is None
    assert receiver(connection).preferences.token_died
    store(connection, [change(3)])
    assert reached(connection) is not None


def rebuild(dsn, changed):
    with psycopg.connect(dsn) as connection:
        return rebuilding.merge(connection, [changed], AT_REST)


def test_an_archived_copy_does_not_revive_a_dead_token(connection, dsn):
    store(connection, [change(2)])
    assert registrations.token_died(connection, [(ALICE, 2)]) == {ALICE}
    assert registrations.stored(connection, [ALICE])[ALICE].token_died
    assert [rebuild(dsn, change(version)) for version in (1, 2)] == [0, 0]
    assert registrations.stored(connection, [ALICE])[ALICE].token_died
    assert rebuild(dsn, change(3)) == 1
    assert not registrations.stored(connection, [ALICE])[ALICE].token_died


def died(connection, days, installation=ALICE):
    connection.execute(
        "UPDATE registrations SET token_died_at = now() - %s * interval '1 day' WHERE installation_hash = %s",
        [days, installation.installation_hash],
    )


def test_the_retention_of_registrations_takes_what_is_dead_for_long_and_leaves_hash_and_version(connection, dsn):
    phones = [Installation(ALICE.key_hash, bytes([number]) * 16) for number in range(5)]
    store(connection, [change(7, phone) for phone in (ALICE, *phones)])
    alive, fresh, *dead = phones
    died(connection, 89, fresh)
    for each in (ALICE, *dead):
        died(connection, 91, each)
    take_on(connection, [delivery(1), delivery(2, installation=alive)], {})
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="x", attempts=3, owner=ALICE)
    taken = [registrations.unregister_dead(connection, seconds=90 * 86_400, most=3) for _ in range(3)]
    assert taken == [3, 1, 0]
    rows = connection.execute("SELECT * FROM registrations WHERE NOT registered").fetchall()
    assert sorted([value for value in row if value is not None] for row in rows) == sorted(
        [each.key_hash, each.installation_hash, 7, b"", False, 7, False] for each in (ALICE, *dead)
    )
    assert registrations.count_installations(connection, [ALICE.key_hash]) == {ALICE.key_hash: 2}
    assert connection.execute("SELECT installation_hash FROM deliveries").fetchall() == [(alive.installation_hash,)]
    assert connection.execute("SELECT count(*) FROM quarantine").fetchone() == (0,)
    # What is left is as good as an unregistration: nothing of before counts.
    with pytest.raises(OutdatedError):
        store(connection, [change(7)])
    assert rebuild(dsn, change(7)) == 0
    store(connection, [change(8)])
    assert registrations.stored(connection, [ALICE])[ALICE].registered


def test_a_device_that_comes_back_at_the_last_moment_stays(dsn, connection):
    store(connection, [change(1)])
    died(connection, 91)
    with psycopg.connect(dsn) as worker:
        store(worker, [change(2)])
        assert registrations.unregister_dead(connection, seconds=90 * 86_400, most=10) == 0
        worker.commit()
    assert registrations.unregister_dead(connection, seconds=90 * 86_400, most=10) == 0
    assert reached(connection).device_token == "token-2"


# Query topics


def test_unused_topics_are_removed_but_not_those_that_collide(connection):
    store(connection, [change(1)])
    topics = query_topics.add(connection, [ALICE.key_hash, b"b" * 64])
    [[candidate]] = [query_topics.candidates(connection, [min(topics)])[min(topics)]]
    query_topics.set_key(connection, candidate, b"k" * 32)
    assert query_topics.candidates(connection, [min(topics)])[min(topics)][0].symmetric_key == b"k" * 32
    shared = connection.execute(
        "UPDATE query_topics SET topic = '\\x00000000' WHERE prefixed RETURNING topic"
    ).fetchone()
    with connection.transaction():
        removed = query_topics.remove_unused(connection)
    assert len(removed) == 1
    assert shared[0] not in removed
    with connection.transaction():
        assert sum(map(len, query_topics.every_topic(connection))) == 2


# Ledger, attempts, quarantine


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


# Answers


def test_answers_keep_their_order_and_are_claimed_once(dsn, connection):
    outbox = [
        SealedAnswer(pubsub_topic="shard", content_topic=str(number), payload=bytes([number]), trace_id="t")
        for number in range(50)
    ]
    ids = answers.add(connection, outbox, hold=0)
    assert connection.execute("SELECT content_topic FROM answers ORDER BY id").fetchall() == [
        (answer.content_topic,) for answer in outbox
    ]

    def claim(_):
        with psycopg.connect(dsn) as own:
            return [answer_id for answer_id, _ in answers.claim(own, limit=10, hold=60)]

    with ThreadPoolExecutor(8) as threads:
        claimed = [answer_id for part in threads.map(claim, range(8)) for answer_id in part]
    assert sorted(claimed) == ids
    answers.remove(connection, ids[:49])
    assert answers.expire(connection, keep=60) == 0
    assert answers.expire(connection, keep=0) == 1


# Deliveries


def test_a_delivery_is_added_once_and_again_after_it_failed(connection):
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
    [claimed] = due.claim(connection, Platform.IOS, limit=10, seconds=60)
    assert (claimed.begun, claimed.failure) == (1, Failure.LEASE_LOST)
    assert deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)]) == []
    assert take(connection, {claimed.delivery_key: 2}) == []
    [(taken, _)] = take(connection, {claimed.delivery_key: 1})
    assert taken == delivery(1, attempt=2, lease=taken.lease, failure=Failure.LEASE_LOST)
    assert take(connection, {claimed.delivery_key: 1}) == []
    assert deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)]) == []
    assert deliveries.settle(connection, [Settlement(delivery=taken, state=DeliveryState.DELIVERED, version=2**64 - 1)])
    row = connection.execute("SELECT state, sealed_content, chat_digest, chat_id, message FROM deliveries").fetchone()
    assert row == ("delivered", None, None, None, None)


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
            return due.claim(own, Platform.IOS, limit=7, seconds=60)

    with ThreadPoolExecutor(8) as threads:
        claimed = [each for part in threads.map(claim, range(24)) for each in part]
    assert sorted(each.delivery_key for each in claimed) == [delivery(number).delivery_key for number in range(60)]
    assert {(each.begun, each.failure) for each in claimed} == {(1, Failure.RATE_LIMITED)}


def test_a_dead_letter_keeps_what_an_operator_needs_to_send_it_again(connection):
    take_on(connection, [delivery(1)], {})
    deliveries.settle(
        connection, [Settlement(delivery=delivery(1), state=DeliveryState.DEAD_LETTER, failure=Failure.RATE_LIMITED)]
    )
    [(key, sealed, failure)] = connection.execute(
        "SELECT delivery_key, sealed_content, failure FROM deliveries"
    ).fetchall()
    assert (*AT_REST.open_content(key, sealed), failure) == (b"chat", b"message", "rate_limited")


def test_giving_a_delivery_back_counts_no_attempt(connection):
    take_on(connection, [delivery(1)], {})
    deliveries.put_back(connection, [delivery(1)])
    connection.execute("UPDATE deliveries SET next_attempt_at = now()")
    [claimed] = due.claim(connection, Platform.IOS, limit=1, seconds=60)
    assert (claimed.begun, claimed.failure) == (0, None)


def test_first_attempts_that_were_put_back_are_claimed_before_a_backlog_and_the_newest_first(connection):
    take_on(connection, [delivery(number) for number in range(6)], {})
    retries = [Settlement(delivery=delivery(number), state=DeliveryState.PENDING, wait=0) for number in (0, 1)]
    deliveries.settle(connection, retries)
    deliveries.put_back(connection, [delivery(number) for number in (2, 3, 4, 5)])
    age = "UPDATE deliveries SET next_attempt_at = now() - %s * interval '1 hour' WHERE delivery_key = %s"
    connection.cursor().executemany(age, [(30 - number, delivery(number).delivery_key) for number in range(5)])
    claimed = [due.claim(connection, Platform.IOS, limit=2, seconds=60) for _ in range(3)]
    keys = [{each.delivery_key for each in part} for part in claimed]
    assert keys == [{delivery(n).delivery_key for n in part} for part in ((4, 3), (2, 0), (1,))]


def test_a_claim_that_nobody_takes_comes_again_and_counts_no_attempt(connection):
    take_on(connection, [delivery(1)], {})
    deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.PENDING, wait=0)])
    for _ in range(3):
        assert [each.begun for each in due.claim(connection, Platform.IOS, limit=1, seconds=0)] == [1]
    [claimed] = due.claim(connection, Platform.IOS, limit=1, seconds=60)
    assert due.claim(connection, Platform.IOS, limit=1, seconds=60) == []
    assert take(connection, {claimed.delivery_key: 1})


@pytest.mark.parametrize("state", sorted(TRANSITIONS[DeliveryState.POSTING]))
def test_every_transition_out_of_posting_is_possible(connection, state):
    take_on(connection, [delivery(1)], {})
    wait = 1.0 if state is DeliveryState.PENDING else None
    assert deliveries.settle(connection, [Settlement(delivery=delivery(1), state=state, wait=wait)])


# Requests


def test_admitted_requests(connection):
    ids = [os.urandom(32) for _ in range(3)]
    take_on(connection, [], {ids[0]: [True, False], ids[1]: []})
    requests.admit(connection, {ids[0]: [False, False]})
    assert requests.admitted(connection, ids) == ({ids[0]: [False, False], ids[1]: []}, set())


# Events and retention


def test_events_come_back_as_they_were_written(connection):
    full = Event(
        kind=EventKind.FAILED, time=NOW.timestamp(), worker="w", trace_id="t\\\t\n", count=7, queue="dispatch",
        queue_wait=0.5, latency=1.5, platform="ios", failure="rate_limited", reason=None, attempt=2, batch_size=50,
        key_pseudonym=b"\x00\x01" * 8, installation_pseudonym=b"\xff" * 16,
    )  # fmt: skip
    events.add(connection, [full, Event(kind=EventKind.RECEIVED, time=NOW.timestamp(), worker="w", trace_id="t")])
    rows = connection.execute(f"SELECT {', '.join(FIELDS)} FROM delivery_events ORDER BY id").fetchall()
    assert rows[0] == tuple(NOW if name == "time" else getattr(full, name) for name in FIELDS)
    assert rows[1][4:] == (1, *[None] * (len(FIELDS) - 5))


def test_the_history_has_a_row_for_all_that_an_event_tells_of(connection):
    """Older events stand there as they are."""
    of_message, of_attempt = {"queue_wait": 0.5, "batch_size": 3}, {"batch_size": 3}
    whom = {"platform": "ios", "failure": "rate_limited", "reason": "disabled", "key_pseudonym": b"k" * 16}
    told = [
        Event(kind=kind, time=NOW.timestamp(), worker="w", trace_id="t", count=2, **whom, **each)
        for kind in set(EventKind) - {EventKind.OPENED}
        for each in ({}, of_attempt if kind in OUTCOMES else of_message)
    ]
    events.add(connection, told)
    history_of = "SELECT kind, queue_wait, count, num_nonnulls({}) FROM delivery_history ORDER BY id, step".format(
        ", ".join(whom)
    )
    rows = connection.execute(history_of).fetchall()
    assert rows == [
        (
            kind,
            event.queue_wait if kind is EventKind.RECEIVED else None,
            2,
            4 if kind in {event.kind, EventKind.ATTEMPT} else 0,
        )
        for event in told
        for kind in history(event)
    ]
    connection.execute("UPDATE delivery_events SET schema_version = 2")
    assert connection.execute(history_of).fetchall() == [(event.kind, event.queue_wait, 2, 4) for event in told]


def test_todays_rows_have_partitions(connection):
    ledger.add(connection, [entry(1, int(NOW.timestamp() * 1e9))])
    events.add(connection, [Event(kind=EventKind.RECEIVED, time=NOW.timestamp(), worker="w", trace_id="t")])
    for table in maintenance.PARTITIONED:
        assert connection.execute(f"SELECT count(*) FROM {table}_default").fetchone() == (0,)
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)


def test_partitions_go_once_all_their_rows_are_old(connection):
    old = NOW.date() - timedelta(days=10)
    maintenance.create_partitions(connection, old)
    ledger.add(connection, [entry(1, int((NOW - timedelta(days=10)).timestamp() * 1e9))])
    assert maintenance.drop_partitions(connection, maintenance.LEDGER, 2 * 86400, NOW.date()) == 4
    connection.execute("UPDATE ledger SET received_at = now() - interval '3 days'")
    assert maintenance.drop_partitions(connection, maintenance.LEDGER, 2 * 86400, NOW.date()) == 1
    assert connection.execute("SELECT count(*) FROM ledger").fetchone() == (0,)


def drop_all_partitions(connection):
    with connection.transaction():
        maintenance.drop_partitions(connection, maintenance.LEDGER, 0.0, NOW.date())


@pytest.mark.parametrize(
    "change",
    [
        lambda connection: maintenance.create_partitions(connection, NOW.date() + timedelta(days=5)),
        drop_all_partitions,
    ],
    ids=["create", "drop"],
)
def test_with_a_long_reader_partitions_are_left_as_they_are_and_nobody_waits(connection, dsn, change):
    maintenance.create_partitions(connection, NOW.date() - timedelta(days=40))
    tables = "SELECT relname FROM pg_class WHERE relname ~ '^(ledger|delivery_events)' AND relkind IN ('r', 'p')"
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(dsn, autocommit=True) as changing,
        psycopg.connect(dsn) as dump,
    ):
        for (table,) in connection.execute(tables).fetchall():
            dump.execute(f'LOCK TABLE "{table}" IN ACCESS SHARE MODE')  # as pg_dump does
        changed = threads.submit(change, changing)
        try:
            wait_until(lambda: connection.execute(waiting).fetchone()[0], timeout=60, what="a lock is waited for")
            connection.execute("SET statement_timeout = '10s'")
            ledger.add(connection, [entry(1, int(NOW.timestamp() * 1e9))])
            assert isinstance(changed.exception(timeout=60), psycopg.errors.LockNotAvailable)
        finally:
            dump.rollback()


@pytest.mark.parametrize("rule", rules(RetentionSettings()), ids=lambda rule: rule.name)
def test_every_rule_deletes(connection, rule):
    take_on(connection, [delivery(1), delivery(2)], {})
    deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)])
    deliveries.settle(connection, [Settlement(delivery=delivery(2), state=DeliveryState.DEAD_LETTER)])
    ledger.count_attempt(connection, entry(5))
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="x", attempts=3, owner=None)
    requests.admit(connection, {b"m" * 32: [True]})
    shadow.begin(connection)
    shadow.end(connection, 0.0)
    token_trials.count(connection, [(Platform.IOS, True, False)])
    events.add(connection, [Event(kind=EventKind.RECEIVED, time=0.0, worker="w", trace_id="t")])
    assert maintenance.delete(connection, RetentionRule(rule.name, 3600)) == (rule.name == "delivery_events_default")
    assert maintenance.delete(connection, RetentionRule(rule.name, 0)) == (rule.name != "delivery_events_default")
