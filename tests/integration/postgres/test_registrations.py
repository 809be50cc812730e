"""What Postgres guarantees of registrations: the version check, what unregistering and retention leave."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest

from support.rows import ALICE, AT_REST, change, delivery, entry, take, take_on
from wakupush.model.deliveries import DeliveryState, Settlement
from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform
from wakupush.model.queues import REGISTRATION
from wakupush.model.registrations import Change, Installation, Preferences, Unregistration
from wakupush.pb.push_notification_pb2 import PushNotificationQueryResponse
from wakupush.postgres import deliveries, ledger, query_topics, rebuilding, registrations, requests
from wakupush.postgres.registrations import OutdatedError
from wakupush.protocol.query import encode_response


def unregistration(version: int) -> Change:
    return Change(ALICE, b"u" * 16, Unregistration(installation_id="phone", version=version))


def target(connection):
    """Return where the next attempt of a delivery to Alice goes."""
    probe = delivery(99)
    take_on(connection, [probe], {})
    deliveries.put_back(connection, [probe])
    [(_, device)] = take(connection, {probe.delivery_key: 0})
    connection.execute("DELETE FROM deliveries WHERE delivery_key = %s", [probe.delivery_key])
    return device and device.target


def store(connection, changes):
    registrations.store(connection, changes, AT_REST)


def devices(connection, key_hashes):
    return registrations.devices(connection, key_hashes, AT_REST)


def receiver(connection, *, chat_id=b"", author=b""):
    """Return what is known of Alice's device for a notification that names these."""
    address = AT_REST.address(ALICE, access_token="access", chat_id=chat_id, author=author)
    other = replace(address, installation=Installation(b"b" * 64, b"1" * 16))
    receivers = requests.receivers(connection, [other, address], AT_REST)
    assert receivers.keys() <= {address}
    return receivers.get(address)


def test_only_newer_versions_are_stored(connection):
    store(connection, [change(5)])
    with pytest.raises(OutdatedError):
        store(connection, [change(5)])
    with pytest.raises(OutdatedError):
        store(connection, [unregistration(4)])
    store(connection, [change(2**64 - 1)])
    assert registrations.stored(connection, [ALICE])[ALICE].version == 2**64 - 1


def test_newest_of_concurrent_versions_stays(dsn):
    def try_to_store(version):
        with psycopg.connect(dsn) as connection:
            try:
                store(connection, [change(version)])
            except OutdatedError:
                connection.rollback()
                return None
        return version

    with ThreadPoolExecutor(16) as threads:
        versions = [version for version in threads.map(try_to_store, [*range(1, 31), *range(30, 0, -1)]) if version]
    assert len(versions) == len(set(versions))
    with psycopg.connect(dsn) as connection:
        assert registrations.stored(connection, [ALICE])[ALICE].version == 30 == max(versions)


def test_unregistering_leaves_only_hash_and_version(connection):
    store(connection, [change(1)])
    take_on(connection, [delivery(1), delivery(2)], {})
    deliveries.settle(
        connection, [Settlement(delivery=delivery(2), state=DeliveryState.DEAD_LETTER, failure=Failure.DEVICE_GONE)]
    )
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="x", attempts=3, owner=ALICE)
    with connection.transaction():
        store(connection, [unregistration(2)])
    row = connection.execute("SELECT * FROM registrations").fetchone()
    assert [value for value in row if value is not None] == [
        b"a" * 64,
        b"1" * 16,
        2,
        b"u" * 16,
        False,
        "",
        datetime.now(UTC).date(),
    ]
    for table in ("deliveries", "quarantine"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert devices(connection, [ALICE.key_hash]) == {}
    assert receiver(connection) is None
    assert target(connection) is None


def test_what_queries_requests_and_deliveries_read(connection):
    store(connection, [change(3, blocked_chat_list=(b"b", b"", b"c"), allow_from_contacts_only=True)])
    [device] = devices(connection, [ALICE.key_hash])[ALICE.key_hash]
    assert (device.version, device.access_token, device.allowed_key_list) == (3, "access", (b"key", b""))
    alice = receiver(connection, chat_id=b"m" * 64, author=b"b")
    assert alice.preferences == Preferences(
        token_fits=True, token_died=False, enabled=True, author_blocked=True, chat_muted=True
    )
    assert receiver(connection, chat_id=b"", author=b"m" * 64).preferences.chat_blocked
    assert alice.contacts_only
    assert alice.target.platform is Platform.IOS
    assert alice.target.device_token == "token-3"
    assert target(connection) == alice.target


@pytest.mark.parametrize("contacts_only", [True, False])
@pytest.mark.parametrize("keys", [(), (b"",) * 100, (b"x" * 256,) * 100, (b"x", b"y" * 127, b"z" * 128)])
def test_answer_never_exceeds_its_measured_size(connection, contacts_only, keys):
    longest = {"installation_id": "urn:uuid:" + "0" * 36, "access_token": "urn:uuid:" + "0" * 36}
    lists = {"allow_from_contacts_only": contacts_only, "allowed_key_list": keys}
    for number in range(3):
        installation = Installation(ALICE.key_hash, bytes([number]) * 16)
        store(connection, [change(2**64 - 1, installation, **longest, **lists)])
    sizes = registrations.answer_sizes(connection, [ALICE.key_hash, b"b" * 64]).bytes_by_user
    response = encode_response(b"", devices(connection, [ALICE.key_hash])[ALICE.key_hash])
    size = sum(info.ByteSize() + 5 for info in PushNotificationQueryResponse.FromString(response).info)
    assert sizes.keys() == {ALICE.key_hash}
    assert size <= sizes[ALICE.key_hash] < size + 3 * (300 + 5 * len(keys))


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


def test_retention_of_the_dead_leaves_hash_and_version(connection, dsn):
    phones = [Installation(ALICE.key_hash, bytes([number]) * 16) for number in range(5)]
    store(connection, [change(7, phone) for phone in (ALICE, *phones)])
    alive, fresh, *dead = phones
    died(connection, 89, fresh)
    for each in (ALICE, *dead):
        died(connection, 91, each)
    connection.execute("UPDATE registrations SET server_key = 'earlier'")
    take_on(connection, [delivery(1), delivery(2, installation=alive)], {})
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="x", attempts=3, owner=ALICE)
    counts = [registrations.unregister_dead(connection, seconds=90 * 86_400, most=3) for _ in range(3)]
    assert counts == [3, 1, 0]
    rows = connection.execute("SELECT * FROM registrations WHERE NOT registered").fetchall()
    assert sorted([value for value in row if value is not None] for row in rows) == sorted(
        [each.key_hash, each.installation_hash, 7, b"", False, False, "", datetime.now(UTC).date()]
        for each in (ALICE, *dead)
    )
    assert registrations.count_installations(connection, [ALICE.key_hash]) == ({ALICE.key_hash: 2}, frozenset())
    assert connection.execute("SELECT installation_hash FROM deliveries").fetchall() == [(alive.installation_hash,)]
    assert connection.execute("SELECT count(*) FROM quarantine").fetchone() == (0,)
    # What is left is as good as an unregistration: nothing of before counts.
    with pytest.raises(OutdatedError):
        store(connection, [change(7)])
    assert rebuild(dsn, change(7)) == 0
    store(connection, [change(8)])
    assert registrations.stored(connection, [ALICE])[ALICE].registered


def test_returning_device_stays_registered(dsn, connection):
    store(connection, [change(1)])
    died(connection, 91)
    with psycopg.connect(dsn) as worker:
        store(worker, [change(2)])
        assert registrations.unregister_dead(connection, seconds=90 * 86_400, most=10) == 0
        worker.commit()
    assert registrations.unregister_dead(connection, seconds=90 * 86_400, most=10) == 0
    assert target(connection).device_token == "token-2"


def test_unused_topics_are_removed_unless_they_collide(connection):
    store(connection, [change(1)])
    topics = query_topics.add(connection, [ALICE.key_hash, b"b" * 64])
    [[candidate]] = [query_topics.candidates(connection, [min(topics)], 1)[min(topics)]]
    query_topics.set_keys(connection, {candidate.key_hash: b"k" * 32}, prefixed=candidate.prefixed)
    assert query_topics.candidates(connection, [min(topics)], 1)[min(topics)][0].symmetric_key == b"k" * 32
    shared = connection.execute(
        "UPDATE query_topics SET topic = '\\x00000000' WHERE prefixed RETURNING topic"
    ).fetchone()
    assert query_topics.unused(connection, b"", 10) == (b"b" * 64, [b"b" * 64])
    assert query_topics.unused(connection, b"b" * 64, 10) == (None, [])
    with connection.transaction():
        removed = query_topics.remove_unused(connection, [ALICE.key_hash, b"b" * 64])
    assert len(removed) == 1
    assert shared[0] not in removed
    with connection.transaction():
        assert sum(map(len, query_topics.every_topic(connection))) == 2
