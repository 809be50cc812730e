"""The registrations that are rebuilt out of the archive are those that the workers made."""

import pickle
import random
import time
from collections import Counter
from threading import Event, Thread

import psycopg
import pytest
from histories import LIMITS, SHARD, History, archive

from pipeline import rebuild
from pipeline.archive import Archive
from pipeline.errors import PipelineError
from wakupush import keyfile
from wakupush.devnet import messages
from wakupush.devnet.redis import RedisServer
from wakupush.protocol import topics
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.waku_message import message_hash
from wakupush.queues import REGISTRATION, Entry
from wakupush.server import handling
from wakupush.server.context import Context
from wakupush.settings import LimitSettings, RedisSettings, WakuSettings
from wakupush.state.rebuilding import COLUMNS
from wakupush.state.registrations import Change
from wakupush.watched import KEY

ROWS = "SELECT {} FROM registrations ORDER BY 1, 2".format(", ".join(f'"{name}"' for name in COLUMNS))
TOPICS = "SELECT key_hash, prefixed, topic FROM query_topics ORDER BY 1, 2"
#: Outcomes that depend on the order in which messages arrive.
OF_THE_ORDER = {"version_outdated", "registered", "unregistered", "repeated"}


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis"), appendonly=False) as server:
        yield server


@pytest.fixture
def server(make_settings, new_database, redis_server, tmp_path):
    """Make settings of one server, each time with a new database."""
    key_file = tmp_path / "identity.key"
    keyfile.make(key_file)

    def make(**options):
        return make_settings(new_database(), archive=tmp_path / "archive", **options).model_copy(
            update={
                "identity_key_file": key_file,
                "redis": RedisSettings(url=redis_server.url),
                "waku": WakuSettings(url="http://127.0.0.1:1"),
                "limits": LimitSettings(**LIMITS),
            }
        )

    make.key = keyfile.read(key_file)
    make.archive = Archive.of(make().pipeline, make.key.public_key)
    return make


def handle(settings, sent, size=16):
    """Let a worker handle messages, batch after batch."""
    entries = [Entry(SHARD, message_hash(SHARD, message), time.time(), message) for message in sent]
    context = Context.open(settings)
    try:
        for start in range(0, len(entries), size):
            handling.handle(context, REGISTRATION, entries[start : start + size], alone=False)
    finally:
        context.close()
        context.app.close()


def rows(settings, query=ROWS):
    with psycopg.connect(settings.postgres.dsn.get_secret_value()) as connection:
        return connection.execute(query).fetchall()


def test_the_same_as_the_workers_made_in_any_order(server, spark, redis_server):
    sent = History.of(server.key.public_key, seed=7).everything()
    live = server()
    handle(live, sent)
    made = rows(live)
    assert len(made) > 30
    refused = Counter(
        label for (label,) in rows(live, "SELECT failure FROM delivery_events WHERE kind IN ('refused', 'foreign')")
    )
    shuffled = random.Random(3).sample(sent, k=len(sent))
    # The archive of two nodes: everything comes twice.
    for order, repeats in ((sent, False), (shuffled, True)):
        archive(server.archive, order)
        rebuilt = server()
        told = rebuild.run(spark, rebuilt)
        assert rows(rebuilt) == made
        assert rows(rebuilt, TOPICS) == rows(live, TOPICS)
        assert told.stored == told.registered + told.unregistered == len(made)
        assert told.watched
        labels = {label: count for label, count in told.outcomes.items() if label not in rebuild.MEANINGS}
        assert {k: v for k, v in labels.items() if k not in OF_THE_ORDER} == {
            k: v for k, v in refused.items() if k not in OF_THE_ORDER
        }
    # Again, into the same database: nothing changes.
    assert rebuild.run(spark, rebuilt).stored == 0
    assert rows(rebuilt) == made
