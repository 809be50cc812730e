"""Messages in segments, on a real Postgres: complete once, whoever has which part, and no flood of parts."""

import time

import psycopg
import pytest

from support.served import SHARD, contacts, in_segments, waiting, work_off
from wakupush.devnet import messages
from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.postgres import message_segments
from wakupush.protocol import envelopes
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import seal_registration
from wakupush.runtime import metrics
from wakupush.server.beat.retention import expire_segments


@pytest.mark.parametrize("signed", [True, False])
def test_a_message_in_segments_is_handled_once_it_is_complete(server, client, signed):
    message = messages.register(client, server.key, messages.registration(client, server.key))
    parts = in_segments(message, server, 100, client if signed else None)
    assert len(parts) > 3
    server.handle(REGISTRATION, *parts[1:], parts[1])
    assert server.outcomes(client) == []
    assert server.rows("SELECT count(*) FROM message_segments") == [(len(parts) - 1,)]
    server.handle(REGISTRATION, parts[0])
    assert server.outcomes(client) == ["success"]
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]
    server.handle(REGISTRATION, *parts)
    assert server.outcomes(client) == []
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]


@pytest.mark.parametrize(("size", "count", "outcome"), [(950_000, 2, "success"), (5_000_000, 7, "MALFORMED_MESSAGE")])
def test_large_registrations_in_segments_of_status(server, client, size, count, outcome):
    """In segments of up to 786,432 bytes. The limit is 1,000,000 in all, and a metric counts what is above it."""
    too_large = metrics.EVENTS.labels("refused", REGISTRATION.name, "", "", Failure.REGISTRATION_TOO_LARGE.label)
    before = too_large._value.get()
    lists = ("blocked_chat_list", "muted_chat_list")
    items = [bytes([number % 256]) * 64 for number in range(size // 66 // len(lists))]  # of 66 bytes as protobuf
    content = messages.registration(client, server.key, **dict.fromkeys(lists, items))
    assert size - 1000 < content.ByteSize() < size + 1000
    sealed = seal_registration(content, client, server.key)
    parts = envelopes.to_key(
        *(client, server.key, Type.PUSH_NOTIFICATION_REGISTRATION, sealed),
        timestamp=time.time_ns(),
        most_bytes=786_432 + envelopes.ENVELOPE_BYTES,
    )
    assert len(parts) == count
    for part in parts:
        server.handle(REGISTRATION, part)
    assert server.outcomes(client) == [outcome]
    assert too_large._value.get() == before + (outcome != "success")
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]


def test_segments_for_another_queue_are_handled_there(server, client):
    message = messages.register(client, server.key, messages.registration(client, server.key))
    parts = in_segments(message, server, 200, client)
    server.handle(DISPATCH, *parts)
    assert server.context.redis.llen(REGISTRATION.name) == 1
    server.handle(REGISTRATION, parts[-1])
    assert server.outcomes(client) == ["success"]
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]


def test_two_workers_complete_a_message_once(server):
    clients = [PrivateKey.generate() for _ in range(10)]
    halves = ([], [])
    for client in clients:
        message = messages.register(client, server.key, messages.registration(client, server.key))
        for position, part in enumerate(in_segments(message, server, 100, client)):
            halves[position % 2].append(part)
    futures = [server.threads.submit(server.handle, REGISTRATION, *half) for half in halves]
    for future in futures:
        future.result()
    work_off(server, REGISTRATION)
    assert server.outcomes(*clients) == ["success"] * len(clients)


@pytest.mark.parametrize("signed", [True, False])
def test_parts_wait_for_the_same_message_only(server, client, dsn, signed):
    """A stranger who holds one message of a signer, and everybody may be the unsigned one, holds up no other."""
    message = messages.register(client, server.key, messages.registration(client, server.key))
    parts = in_segments(message, server, 100, client if signed else None)
    signer = client.public_key.compressed if signed else b""
    with psycopg.connect(dsn) as stranger:
        assert message_segments.lock(stranger, {(signer, bytes(32))}, waits=True)
        server.handle(REGISTRATION, parts[0])
    assert [index for _, index in waiting_segments(server)] == [0]


@pytest.fixture
def busy_part(server, client):
    """The part of a message that another task is joining, and the name of this message."""
    message = messages.register(client, server.key, messages.registration(client, server.key))
    first, second, *_ = in_segments(message, server, 100, None)
    server.handle(REGISTRATION, first)
    [name] = server.rows("SELECT signer, entire_message_hash FROM message_segments")
    return second, name


def test_nobody_waits_for_parts_of_a_busy_message(server, busy_part, dsn):
    """A stranger may send parts of one message all the time, so that some worker always has a part of it."""
    part, name = busy_part
    honest = PrivateKey.generate()
    other = messages.register(honest, server.key, messages.registration(honest, server.key))
    with psycopg.connect(dsn) as worker:
        assert message_segments.lock(worker, {name}, waits=False) == {name}
        server.handle(REGISTRATION, part, other)
        assert server.outcomes(honest) == ["success"]
        assert server.rows("SELECT count(*) FROM ledger") == [(2,)]
    work_off(server, REGISTRATION)
    assert sorted(server.rows("SELECT index FROM message_segments")) == [(0,), (1,)]


@pytest.mark.parametrize("how", ["alone", "is_rest"])
def test_who_holds_up_nobody_waits_for_parts(server, busy_part, dsn, how):
    part, name = busy_part
    entry = Entry(SHARD, message_hash(SHARD, part), time.time(), part)
    with psycopg.connect(dsn) as worker:
        message_segments.lock(worker, {name}, waits=True)
        future = server.threads.submit(server.run, REGISTRATION, [entry], **{how: True})
        with pytest.raises(TimeoutError):
            future.result(timeout=0.3)
    future.result()
    assert waiting(server, REGISTRATION) == []
    assert sorted(server.rows("SELECT index FROM message_segments")) == [(0,), (1,)]


def test_message_that_loses_a_part_waits_for_it(server, client, dsn, monkeypatch):
    """Another signature of the same signer may push a part out after a worker has counted the parts."""
    message = messages.register(client, server.key, messages.registration(client, server.key))
    parts = in_segments(message, server, 100, client)
    server.handle(REGISTRATION, *parts[:-1])
    original = message_segments.stored

    def then_one_goes(*args):
        result = original(*args)
        with psycopg.connect(dsn) as other:
            other.execute("DELETE FROM message_segments WHERE index = 1")
        return result

    monkeypatch.setattr(message_segments, "stored", then_one_goes)
    server.handle(REGISTRATION, parts[-1])
    assert server.outcomes(client) == []
    assert {index for _, index in waiting_segments(server)} == set(range(len(parts))) - {1}
    monkeypatch.setattr(message_segments, "stored", original)
    server.rows("DELETE FROM ledger RETURNING 1")
    server.handle(REGISTRATION, parts[1])
    assert server.outcomes(client) == ["success"]


def waiting_segments(server) -> list[tuple[bytes, int]]:
    """Return signer and index of the segments that wait, the oldest first."""
    return server.rows("SELECT signer, index FROM message_segments ORDER BY received_at, signer, index DESC")


def test_segments_are_limited(open_server, client, monkeypatch):
    """Of one message and of one signer the newest stay; of everybody chance decides which messages do."""
    monkeypatch.setattr("wakupush.server.engine.segments.MESSAGE_SEGMENTS", 20)
    monkeypatch.setattr("wakupush.server.engine.segments.SIGNER_SEGMENTS", 3)
    monkeypatch.setattr("wakupush.server.beat.retention.SEGMENTS", 5)
    server = open_server()
    other, third = PrivateKey.generate(), PrivateKey.generate()
    message = messages.register(client, server.key, messages.registration(client, server.key))
    for signer in (client, other, third):
        for part in in_segments(message, server, 100, signer)[4:0:-1]:
            server.handle(REGISTRATION, part)
        expire_segments(server.context)
        # Two messages of three parts are one part too many for everybody: one of them goes as a whole.
        [(owner, _), *_] = rows = waiting_segments(server)
        assert rows == [(owner, index) for index in (3, 2, 1)]
    assert server.events("refused") == []
    server.handle(REGISTRATION, *in_segments(message, server, 10, client)[:1])
    assert server.events("refused") == [("segment_limit", None)]
    server.rows("UPDATE message_segments SET received_at = now() - interval '1 day' RETURNING 1")
    assert expire_segments(server.context) == 3


@pytest.mark.parametrize(
    ("most", "count"),
    [
        # 500 bytes a part, and 28 of its seal: two parts of each signer, and three of everybody.
        ((1500, 10_000), (2, 4)),
        ((10_000, 1600), (3, 3)),
    ],
)
def test_bytes_of_segments_are_limited(most, count, open_server, client, monkeypatch):
    monkeypatch.setattr("wakupush.server.engine.segments.SIGNER_BYTES", most[0])
    monkeypatch.setattr("wakupush.server.beat.retention.SEGMENT_BYTES", most[1])
    server = open_server()
    registrations = [messages.registration(client, server.key, apn_topic="x" * 500) for _ in range(3)]
    for signer, parts in zip((client, PrivateKey.generate()), count, strict=True):
        registering = [messages.register(client, server.key, each) for each in registrations]
        server.handle(REGISTRATION, *(in_segments(each, server, 500, signer)[0] for each in registering))
        expire_segments(server.context)
        assert len(waiting_segments(server)) == parts
    assert server.events("refused") == []
    large = messages.register(client, server.key, messages.registration(client, server.key, **contacts(200)))
    server.handle(REGISTRATION, in_segments(large, server, 500, client)[0])
    assert server.events("refused") == [("segment_limit", None)]


def test_a_segment_waits_for_reconciliation(server, client):
    message = messages.register(client, server.key, messages.registration(client, server.key))
    first, second = in_segments(message, server, 300, client)
    server.handle(REGISTRATION, first)
    server.rows("UPDATE message_segments SET received_at = now() - interval '23 hours' RETURNING 1")
    assert expire_segments(server.context) == 0
    server.handle(REGISTRATION, second)
    assert server.outcomes(client) == ["success"]


def test_segments_beyond_the_bytes_of_a_task_wait(open_server, monkeypatch):
    monkeypatch.setattr("wakupush.server.engine.run.TASK_BYTES", 600)
    server = open_server()
    clients = [PrivateKey.generate() for _ in range(2)]
    registrations = [messages.register(one, server.key, messages.registration(one, server.key)) for one in clients]
    halves = zip(
        *(in_segments(each, server, 300, one) for each, one in zip(registrations, clients, strict=True)), strict=True
    )
    for half in halves:
        server.handle(REGISTRATION, *half)
    assert server.outcomes(*clients) == ["success"]
    assert waiting(server, REGISTRATION) == [([half[1].payload], {})]
    server.handle(REGISTRATION, half[1])
    assert server.outcomes(*clients) == ["success"]
