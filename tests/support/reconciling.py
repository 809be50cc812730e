"""Reconciliation with a node, a database and a Redis of a test, and what it comes to."""

import os
import time
from threading import Event

import httpx2
from psycopg.conninfo import make_conninfo

from wakupush.ingest.reconcile import walk
from wakupush.ingest.reconcile.process import Reconciliation
from wakupush.model.entries import Entry
from wakupush.model.queues import QUEUES
from wakupush.model.roles import Role
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import ledger, reconciliation
from wakupush.protocol import topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.settings import PostgresSettings, ReconcileSettings, RedisSettings, Settings, WakuSettings
from wakupush.waku.codec import encode_message

SHARD = "/waku/2/rs/16/32"
FOREIGN = "/waku/1/0x12345678/rfc26"
NOWHERE = "http://127.0.0.1:1"
#: Seconds of the window: 20 slices.
WINDOW = 6000.0
_partitions = set()


class Bench:
    """A server's own topics, what is sent to them, and what reconcile makes of it."""

    def __init__(self, node_url, dsn, redis_server, redis, connection):
        self.server = _server_of_a_new_partition()
        self.personal, self.partitioned = topics.server_content_topics(self.server)
        self.node_url, self.dsn, self.redis, self.connection = node_url, dsn, redis, connection
        self.redis_url = redis_server.url
        self.stop = Event()
        #: Public keys of before.
        self.previous = ()

    def settings(self, *, dsn=None, redis_url=None, stores=(), **reconcile):
        """Return settings of reconcile."""
        return Settings(
            public_key=str(self.server),
            previous_public_keys=tuple(map(str, self.previous)),
            waku=WakuSettings(url=self.node_url, shards=(SHARD,), timeout=3),
            redis=RedisSettings(url=redis_url or self.redis_url, timeout=1),
            postgres=PostgresSettings(dsn=dsn or make_conninfo(self.dsn, user=Role.RECONCILE), timeout=1),
            reconcile=ReconcileSettings(stores=stores, **reconcile),
        )

    def walkers(self, *, backlog_age=86_400.0, **options):
        """Open walkers; no queue counts as behind, however long a test takes, unless told otherwise."""
        reconciliation = Reconciliation.open(self.settings(**options), self.stop)
        for recent in reconciliation.recent:
            recent.walker.rest.most_age = backlog_age
        return reconciliation, *reconciliation.recent

    def send(self, content_topic=None, *, ago=1.0, count=1, apart=0.0):
        """Send messages, the last so many seconds ago; what peers relay to the node comes a thousand at a time."""
        last = time.time_ns() - int(ago * 10**9)
        entries = []
        for number in range(count):
            stamp = last - int((count - 1 - number) * apart * 10**9)
            message = WakuMessage(
                payload=os.urandom(400), content_topic=content_topic or self.personal, timestamp=stamp
            )
            entries.append(Entry(SHARD, message_hash(SHARD, message), stamp / 1e9, message))
        for start in range(0, count, 1000):
            messages = [encode_message(entry.message) for entry in entries[start : start + 1000]]
            body = {"pubsubTopic": SHARD, "messages": messages}
            httpx2.post(f"{self.node_url}/dev/messages", json=body, timeout=60).raise_for_status()
        return entries

    def queued_hashes(self):
        return {name: self.redis.llen(name) for name in QUEUES if self.redis.llen(name)}

    def claimed_hashes(self):
        return {key.removeprefix(b"wakupush:claim:") for key in self.redis.keys("wakupush:claim:*")}

    def handle(self, entries):
        with self.connection.transaction():
            ledger.add(self.connection, entries)

    def watermark(self, recent):
        return reconciliation.watermark(self.connection, recent.walker.track(SHARD))


def _server_of_a_new_partition():
    """Return a key that shares its topic with no server before: the node still has what was sent to that one."""
    while (key := PrivateKey.generate().public_key).partition in _partitions:
        pass
    _partitions.add(key.partition)
    return key


def walk_from(recent, seconds):
    """Walk from so many seconds ago to now; None if it failed."""
    return recent.walker.attempt(SHARD, lambda: recent.walker.walk(SHARD, ago(seconds), time.time()))


def looked_back(recent):
    return recent.walker.attempt(SHARD, lambda: recent.look_back(SHARD))


def turn(recent):
    return recent.walker.attempt(SHARD, lambda: recent.turn(SHARD))


def hashes(entries):
    return {entry.hash for entry in entries}


def ago(seconds):
    return time.time() - seconds


def after_each_page(recent, monkeypatch, function):
    """Call a function with its number after each page of a walk."""
    pages = []
    heal = walk.Walker._heal

    def note(walker, *arguments):
        heal(walker, *arguments)
        if walker is recent.walker:
            pages.append(1)
            function(len(pages))

    monkeypatch.setattr(walk.Walker, "_heal", note)
