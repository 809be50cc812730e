"""The registrations that are rebuilt out of the archive are those that the workers made."""

import pickle
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event, Thread

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyarrow import parquet
from pyspark.sql.pandas.types import from_arrow_schema

from support.pipeline.histories import INSTALLATIONS, LIST_ITEMS, SEGMENTS, SHARD, SMALL, History, archive
from support.stored import contents
from wakupush.devnet import messages
from wakupush.devnet.redis import RedisServer
from wakupush.model.entries import Entry
from wakupush.model.queues import REGISTRATION
from wakupush.model.roles import Role
from wakupush.operate import identities
from wakupush.pipeline.archive import rebuild
from wakupush.pipeline.archive.files import Archive
from wakupush.pipeline.errors import PipelineError
from wakupush.postgres.rebuilding import COLUMNS
from wakupush.protocol import registration
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.identity import to_text
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import seal_registration
from wakupush.runtime import keyfile
from wakupush.runtime.settings import LimitSettings, PostgresSettings, RedisSettings, WakuSettings
from wakupush.server.engine import isolation, segments
from wakupush.server.engine.open import open_asymmetric
from wakupush.server.registration import loading
from wakupush.server.registration.installations import Installations, change_of
from wakupush.server.registration.read import open_registration
from wakupush.server.worker import open_worker

TOPICS = "SELECT key_hash, prefixed, topic FROM query_topics ORDER BY 1, 2"
#: Outcomes that depend on the order in which messages arrive.
OF_THE_ORDER = {"version_outdated", "registered", "unregistered", "repeated"}


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis"), appendonly=False) as server:
        yield server


@pytest.fixture
def server(make_settings, new_database, redis_server, tmp_path, monkeypatch):
    """Make settings of one server, each time with a new database."""
    key_file = tmp_path / "identity.key"
    keyfile.write(key_file, PrivateKey.generate().secret)
    monkeypatch.setattr(registration, "LIMITS", registration.Limits(list_items=LIST_ITEMS))
    for module in (segments, rebuild):
        monkeypatch.setattr(module, "MESSAGE_SEGMENTS", SEGMENTS)

    def make(**options):
        return make_settings(new_database(), archive=tmp_path / "archive", **options).model_copy(
            update={
                "identity_key_file": key_file,
                "redis": RedisSettings(url=redis_server.url),
                "waku": WakuSettings(url="http://127.0.0.1:1"),
                "limits": LimitSettings(installations_per_key=INSTALLATIONS),
            }
        )

    make.key = keyfile.read(key_file, PrivateKey.from_hex)
    make.archive = Archive.of(make().pipeline, make.key.public_key)
    return make


def handle(settings, published_messages, size=16):
    """Let a worker handle messages, batch after batch."""
    entries = [Entry(SHARD, message_hash(SHARD, message), time.time(), message) for message in published_messages]
    context = open_worker(settings)
    try:
        for start in range(0, len(entries), size):
            isolation.handle(context, REGISTRATION, entries[start : start + size], alone=False)
    finally:
        context.close()
        context.app.close()


def as_its_role(spark, settings):
    """Rebuild as the role that is for it."""
    postgres = PostgresSettings(dsn=make_conninfo(settings.postgres.dsn.get_secret_value(), user=Role.REBUILD))
    return rebuild.run(spark, settings.model_copy(update={"postgres": postgres}))


def rows(settings, query):
    with psycopg.connect(settings.postgres.dsn.get_secret_value()) as connection:
        return connection.execute(query).fetchall()


def registrations(settings):
    with psycopg.connect(settings.postgres.dsn.get_secret_value()) as connection:
        return contents(connection, rebuild.identity_in(settings.identity_key_file))


def test_the_same_as_the_workers_made_in_any_order(server, spark):
    published_messages = History.of(server.key.public_key, seed=7).everything()
    live = server()
    handle(live, published_messages)
    expected_registrations = registrations(live)
    assert len(expected_registrations) > 30
    refused = dict(
        rows(
            live,
            "SELECT failure, sum(count)::int FROM delivery_history WHERE kind IN ('refused', 'foreign') GROUP BY 1",
        )
    )
    for order in (published_messages, random.Random(3).sample(published_messages, k=len(published_messages))):
        for file in server.archive.files():
            file.unlink()
        archive(server.archive, order)
        rebuilt = server()
        summary = as_its_role(spark, rebuilt)
        assert registrations(rebuilt) == expected_registrations
        assert rows(rebuilt, TOPICS) == rows(live, TOPICS)
        assert summary.stored == summary.registered + summary.unregistered == len(expected_registrations)
        assert summary.watched
        labels = {label: count for label, count in summary.outcomes.items() if label not in rebuild.MEANINGS}
        assert {k: v for k, v in labels.items() if k not in OF_THE_ORDER} == {
            k: v for k, v in refused.items() if k not in OF_THE_ORDER
        }
    # Again, into the same database: nothing changes.
    assert as_its_role(spark, rebuilt).stored == 0
    assert registrations(rebuilt) == expected_registrations


def test_registrations_are_rebuilt_under_the_key_they_name(server, spark):
    """After a rotation the archive of the key of before is read, too."""
    settings, archives = server(), [server.archive]
    identity = identities.rotate(rebuild.identity_in(settings.identity_key_file))
    settings.identity_key_file.unlink()
    keyfile.write_text(settings.identity_key_file, to_text(identity))
    archives.append(Archive.of(settings.pipeline, identity.public_key))
    all_messages = []
    for key, folder, seed in zip((server.key.public_key, identity.public_key), archives, (5, 6), strict=True):
        messages = History.of(key, seed=seed).user_of_versions()
        archive(folder, messages)
        all_messages += messages
    live, rebuilt = server(), server()
    handle(live, all_messages)
    as_its_role(spark, rebuilt)
    assert registrations(rebuilt) == registrations(live)
    server_keys = "SELECT key_hash, server_key FROM registrations WHERE registered ORDER BY 1"
    assert rows(rebuilt, server_keys) == rows(live, server_keys)
    assert {key for _, key in rows(live, server_keys)} == {None, identity.id_of(identity.public_key)}


def test_into_a_database_that_is_ahead(server, spark):
    """The server has messages that the archive lacks, and lacks some that it has."""
    history = History.of(server.key.public_key, seed=11)
    published_messages = [message for _ in range(10) for message in history.user_of_versions()]
    whole, living = server(), server()
    handle(whole, published_messages)
    archive(server.archive, published_messages[: len(published_messages) * 3 // 4])
    handle(living, published_messages[len(published_messages) // 2 :])
    as_its_role(spark, living)
    assert registrations(living) == registrations(whole)


def test_while_a_server_is_writing(server):
    """Workers and a rebuild store versions of the same installations at the same time, in transactions of all sizes."""
    history = History.of(server.key.public_key, seed=12)
    published_messages = [message for _ in range(25) for message in history.user_of_versions()]
    whole, living = server(), server()
    handle(whole, published_messages)
    identity = rebuild.identity_in(living.identity_key_file)
    changes = []
    for message in published_messages:
        opened = open_asymmetric(Entry(SHARD, b"", 0.0, message), identity)
        change_request = open_registration(
            identity,
            opened.signer,
            opened.recipient,
            opened.inner,
            most_bytes=registration.LIMITS.registration_bytes,
        )
        with suppress(Refused):
            changes.append(
                change_of(
                    identity,
                    change_request,
                    Installations(),
                    most_installations=INSTALLATIONS,
                    limits=registration.LIMITS,
                )
            )
    counts, over = Counter(), Event()

    def load():
        chance = random.Random(4)
        with psycopg.connect(living.postgres.dsn.get_secret_value(), autocommit=True) as connection:
            while not over.is_set():
                some = {each.installation: each for each in chance.choices(changes, k=chance.randint(1, 12))}
                loaded = loading.load(connection, list(some.values()), identity.at_rest)
                counts.update(stored=loaded.stored)

    loaders = [Thread(target=load) for _ in range(2)]
    for loader in loaders:
        loader.start()
    try:
        handle(living, published_messages, size=4)
    finally:
        over.set()
        for loader in loaders:
            loader.join()
    assert counts["stored"] > 10
    # Of an installation whose newest version only a loader had, the worker's later ones were outdated: all agree.
    assert registrations(living) == registrations(whole)


def test_every_client_column_is_rebuilt(connection):
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'registrations'"
    columns_of_table = {name for (name,) in connection.execute(columns)}
    assert columns_of_table == {*COLUMNS, "device_digest", "token_died_at", "suspected_at", "proven", "written_on"}


def test_nothing_is_lowered(server, spark):
    """What the platforms told of a version stays with it; what is newer forgets it."""
    history = History.of(server.key.public_key, seed=5)
    clients = [PrivateKey.generate() for _ in range(4)]
    device = "0a2b5c1e-0000-4000-8000-00000000000a"
    registered_messages = [m for each in clients for m in history.register(each, version=2, installation_id=device)]
    archive(server.archive, registered_messages)
    living = server()
    older = history.register(clients[1], version=1, installation_id=device)
    newer = history.register(clients[2], version=3, installation_id=device, unregister=True)
    handle(living, [registered_messages[0], *older, *newer])
    with psycopg.connect(living.postgres.dsn.get_secret_value()) as connection:
        connection.execute("UPDATE registrations SET token_died_at = now() WHERE registered")
    assert as_its_role(spark, living).stored == 2
    states = {
        bytes(key): (int(version), registered, died)
        for key, version, registered, died in rows(
            living, "SELECT key_hash, version, registered, token_died_at IS NOT NULL FROM registrations"
        )
    }
    hashes = [client.public_key.key_hash for client in clients]
    assert [states[each] for each in hashes] == [
        (2, True, True),
        (2, True, False),
        (3, False, False),
        (2, True, False),
    ]


def test_unregistering_takes_what_is_under_way_with_it(server, spark):
    history = History.of(server.key.public_key, seed=6)
    client, device = PrivateKey.generate(), "0a2b5c1e-0000-4000-8000-00000000000b"
    living = server()
    handle(living, history.register(client, version=1, installation_id=device))
    with psycopg.connect(living.postgres.dsn.get_secret_value()) as connection:
        connection.execute(
            "INSERT INTO deliveries (delivery_key, key_hash, installation_hash, platform, notification_type, state,"
            " attempt, seen_at, expires_at, finished_at, task_id, trace_id)"
            " SELECT '\\x01', key_hash, installation_hash, 1, 1, 'dead_letter', 1, now(), now(), now(), 't', 't'"
            " FROM registrations"
        )
    archive(server.archive, history.register(client, version=2, installation_id=device, unregister=True))
    assert as_its_role(spark, living).unregistered == 1
    assert rows(living, "SELECT count(*) FROM deliveries") == [(0,)]


def test_what_postgres_cannot_hold_is_put_aside_alone(server):
    identity = rebuild.identity_in(server().identity_key_file)
    client = PrivateKey.generate()
    changes = []
    for number in range(5):
        content = messages.registration(client, server.key.public_key)
        sealed = seal_registration(content, client, server.key.public_key)
        change_request = open_registration(identity, client.public_key, identity.public_key, sealed, most_bytes=100_000)
        change = change_of(identity, change_request, Installations(), most_installations=9, limits=registration.LIMITS)
        if number == 3:
            change = replace(change, registration=replace(change.registration, token_type=99_999))
        changes.append(change)
    settings = server()
    with psycopg.connect(settings.postgres.dsn.get_secret_value(), autocommit=True) as connection:
        assert loading.load(connection, changes, identity.at_rest) == loading.Loaded(4, (changes[3],))


def test_no_secret_leaves_the_executors(server, spark):
    """Neither tasks nor plans nor rows between the steps have keys, the connection string or what clients sealed."""
    settings = server()
    dsn = "postgresql://wakupush:the-password@127.0.0.1:1/wakupush"
    job = rebuild.Job.of(settings.model_copy(update={"postgres": PostgresSettings(dsn=dsn)}))
    pickled = pickle.dumps(job)
    assert b"the-password" not in pickled
    assert server.key.secret not in pickled
    assert server.key.secret.hex().encode() not in pickled
    history = History.of(server.key.public_key, seed=8)
    token = "a-device-token-that-nobody-else-has"
    archive(
        server.archive,
        [
            *history.register(PrivateKey.generate(), device_token=token),
            *history.register(PrivateKey.generate(), SMALL, device_token=token, muted_chat_list=[b"m" * 64] * 40),
        ],
    )
    frame = spark.read.parquet(*map(str, server.archive.files())).mapInArrow(
        partial(rebuild._open, job), from_arrow_schema(rebuild._CONTENT_SCHEMA)
    )
    opened = [row.asDict() for row in frame.collect()]
    assert {row["outcome"] for row in opened} == {"registration", "segment"}
    between = repr(opened).encode() + b"".join(v for row in opened for v in row.values() if isinstance(v, bytes))
    assert token.encode() not in between
    assert b"m" * 64 not in between
    plan = frame._jdf.queryExecution().toString()
    assert "MapInArrow" in plan
    assert "the-password" not in plan
    assert server.key.secret.hex() not in plan


def test_an_endlessly_repeated_message_is_handed_over(server):
    """Its parts come again and again, and make the whole each time."""
    history = History.of(server.key.public_key, seed=10)
    archive(server.archive, history.register(PrivateKey.generate(), SMALL, muted_chat_list=[b"m" * 64] * 40))
    job = rebuild.Job.of(server())
    messages = parquet.read_table(server.archive.files()).combine_chunks().to_batches()
    [parts] = rebuild._open(job, messages)
    assert set(parts.column("outcome").to_pylist()) == {"segment"}
    assert len(set(parts.column("index").to_pylist())) == parts.num_rows > 1
    repeats = [parts] * (3 * rebuild.WHOLES_AT_ONCE)
    remainder = iter(repeats)
    joined = rebuild._join(job, remainder)
    first = next(joined)
    assert set(first.column("outcome").to_pylist()) == {"registration"}
    assert len(list(remainder)) >= len(repeats) // 2


def test_what_is_missing_is_told(server, spark, tmp_path):
    settings = server()
    with pytest.raises(PipelineError, match="run fetch-archive first"):
        as_its_role(spark, settings)
    with pytest.raises(PipelineError, match="WAKUPUSH_IDENTITY_KEY_FILE is missing"):
        as_its_role(spark, settings.model_copy(update={"identity_key_file": None}))
    with pytest.raises(PipelineError, match="cannot be read"):
        as_its_role(spark, settings.model_copy(update={"identity_key_file": tmp_path / "none"}))
    archive(server.archive, History.of(server.key.public_key, seed=9).register(PrivateKey.generate()))
    path = server.archive.files()[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(PipelineError, match=f"{path.name} cannot be read: delete it, and run fetch-archive again"):
        as_its_role(spark, settings)
