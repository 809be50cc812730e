"""What is run against an old and large database: each job of beat, and messages of each kind through a worker."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.age.fill import DAY, REQUESTS_A_DAY, Size
from benchmarks.age.statements import Recorder
from benchmarks.made import SHARD
from benchmarks.running import gorush_fault
from wakupush.devnet import messages
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION, Queue
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration
from wakupush.postgres import backlog, dead_letters, quarantine, query_topics, reconciliation
from wakupush.protocol import application, envelopes, topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import seal_registration
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.settings import Settings
from wakupush.server.beat import retention
from wakupush.server.beat.beat import Beat, open_beat
from wakupush.server.beat.deliveries import claim_due
from wakupush.server.beat.jobs import JOBS
from wakupush.server.beat.queries import derive_keys, fill_watched_topics
from wakupush.server.delivery.next_attempts import attempt_due
from wakupush.server.engine import isolation
from wakupush.server.worker import Worker, open_worker

#: Messages of one task.
BATCH = 64
_WAITING = "SELECT delivery_key, attempt FROM deliveries WHERE key_hash = ANY (%(keys)s) AND state = 'pending'"
#: Deliveries of a hundred that are attempted again, in a bad month.
RETRIED = 0.1


@dataclass(frozen=True, kw_only=True)
class Work:
    """A piece of work."""

    name: str
    #: Returns how many rows, or messages, it did.
    run: Callable[[], object]
    #: Of a server of that size: rows that it does a day, or runs if it finds nothing.
    rows_a_day: float = 0.0
    runs_a_day: float = 0.0
    #: Whether it may take as long as it takes: it reads or makes all there is, seldom.
    may_be_long: bool = False


@dataclass(frozen=True)
class Processes:
    """A worker and beat in this process, whose statements are recorded."""

    worker: Worker
    beat: Beat


@contextmanager
def processes(settings: Settings, recorder: Recorder) -> Iterator[Processes]:
    """Open them; settings have an identity key."""
    worker, beat = open_worker(settings), open_beat(settings)
    pools = [open_pool(settings.postgres, recorder.watch) for _ in range(2)]
    for opened in (worker, beat):
        opened.pool.close()
    try:
        yield Processes(
            replace(worker, pool=pools[0], outbox=replace(worker.outbox, pool=pools[0])),
            replace(beat, pool=pools[1], outbox=replace(beat.outbox, pool=pools[1])),
        )
    finally:
        worker.close()
        beat.close()
        for pool in pools:
            pool.close()


def every_work(opened: Processes, size: Size) -> list[Work]:
    """Return all of it, in an order in which each finds something to do."""
    return [*_messages(opened), *_looks(opened), *_jobs(opened.beat, size)]


def _messages(opened: Processes) -> list[Work]:
    traffic = Traffic(opened.worker)
    return [
        Work(name="first registrations", run=traffic.register),
        Work(name="registrations again", run=traffic.register_again),
        Work(name="a registration in segments", run=traffic.register_in_segments),
        Work(name="queries", run=traffic.query),
        Work(name="push requests", run=traffic.request),
        Work(name="push requests again", run=traffic.request_again),
        Work(name="foreign messages", run=traffic.garbage),
        Work(name="push requests that gorush refuses", run=traffic.request_in_vain),
        Work(name="next attempts", run=traffic.attempt_due),
        Work(name="unregistrations", run=traffic.unregister),
    ]


def _looks(opened: Processes) -> list[Work]:
    """What other processes and the command line ask Postgres."""

    def within(ask: Callable[..., object]) -> Callable[[], object]:
        def run() -> object:
            with opened.worker.pool.connection() as connection:
                return ask(connection)

        return run

    selection = dead_letters.Selection()
    return [
        Work(name="exporter: deliveries", run=within(lambda one: len(backlog.count_deliveries(one, [])))),
        Work(
            name="reconcile: missing",
            run=within(lambda one: len(reconciliation.find_missing(one, [os.urandom(32) for _ in range(100)]))),
        ),
        Work(name="dead letters: a page", run=within(lambda one: next(dead_letters.every(one, selection, 50)))),
        Work(
            name="quarantine: a page",
            run=within(lambda one: list(quarantine.every(one, quarantine.QuarantineSelection(), 50))),
        ),
    ]


def _jobs(beat: Beat, size: Size) -> list[Work]:
    deleted = {"deliveries": size.users * REQUESTS_A_DAY, "dead_letters": size.users * REQUESTS_A_DAY / 100}
    rules = [
        Work(
            name=f"prune: {name}",
            run=rule,
            rows_a_day=deleted.get(name, 0.0),
            runs_a_day=DAY / JOBS[retention.prune],
            may_be_long=name in {"partitions", "ledger", "delivery_events", "admitted_requests"},
        )
        for name, rule in retention._work(beat).items()  # noqa: SLF001 - each rule by itself
    ]
    others = [
        Work(
            name=job.__name__,
            run=partial(job, beat),
            rows_a_day=size.users * REQUESTS_A_DAY * RETRIED if job is claim_due else 0.0,
            runs_a_day=DAY / pause,
            # The first rests on purpose, the other is run after a loss of Redis alone.
            may_be_long=job in {derive_keys, fill_watched_topics},
        )
        for job, pause in JOBS.items()
        if job is not retention.prune
    ]
    return others + rules


class Traffic:
    """Users of our own, who send a task of each kind to a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._server = worker.identity.public_key
        self._clients = [PrivateKey.generate() for _ in range(BATCH)]
        self._contents: list[PushNotificationRegistration] = []
        #: Sender, item and id of each request.
        self._requests: list[tuple[PrivateKey, PushNotification, bytes]] = []

    def _handle(self, queue: Queue, published_messages: list[WakuMessage]) -> int:
        entries = [Entry(SHARD, message_hash(SHARD, message), time.time(), message) for message in published_messages]
        isolation.handle(self._worker, queue, entries, alone=False)
        self._worker.followers.wait()
        return len(published_messages)

    def _registrations(self, version: int, **fields: object) -> list[WakuMessage]:
        if not self._contents:
            self._contents = [messages.registration(client, self._server) for client in self._clients]
        for content in self._contents:
            content.version = version
        for content in self._contents:
            for name, value in fields.items():
                setattr(content, name, value)
        pairs = zip(self._clients, self._contents, strict=True)
        return [messages.register(client, self._server, content) for client, content in pairs]

    def register(self) -> int:
        count = self._handle(REGISTRATION, self._registrations(1))
        keys = {
            client.public_key.key_hash: topics.symmetric_key(topics.query_topics(client.public_key.key_hash)[0])
            for client in self._clients
        }
        with self._worker.pool.connection() as connection:
            query_topics.set_keys(connection, keys, prefixed=False)
        return count

    def register_again(self) -> int:
        return self._handle(REGISTRATION, self._registrations(2))

    def register_in_segments(self) -> int:
        content = self._contents[0]
        content.version = 3
        client, server = self._clients[0], self._server
        parts = envelopes.to_key(
            client,
            server,
            application.Type.PUSH_NOTIFICATION_REGISTRATION,
            seal_registration(content, client, server),
            timestamp=time.time_ns(),
            most_bytes=envelopes.ENVELOPE_BYTES + 200,
        )
        return self._handle(REGISTRATION, parts)

    def unregister(self) -> int:
        return self._handle(REGISTRATION, self._registrations(4, unregister=True))

    def query(self) -> int:
        key_hashes = [random.choice(self._clients).public_key.key_hash for _ in range(BATCH)]
        return self._handle(QUERY, [messages.query(PrivateKey.generate(), key_hash) for key_hash in key_hashes])

    def request(self) -> int:
        items = [
            messages.notification(client.public_key.key_hash, content)
            for client, content in zip(self._clients, self._contents, strict=True)
        ]
        self._requests = [(PrivateKey.generate(), item, os.urandom(32)) for item in items]
        return self.request_again()

    def request_again(self) -> int:
        requests = [
            messages.request(sender, self._server, [item], message_id) for sender, item, message_id in self._requests
        ]
        return self._handle(DISPATCH, requests)

    def request_in_vain(self) -> int:
        with gorush_fault(str(self._worker.settings.gorush.url[0]), kind="status", status=503):
            return self.request()

    def attempt_due(self) -> int:
        with self._worker.pool.connection() as connection:
            waiting = dict(connection.execute(_WAITING, {"keys": [one.public_key.key_hash for one in self._clients]}))
        attempt_due(self._worker, waiting, "")
        self._worker.followers.wait()
        return len(waiting)

    def garbage(self) -> int:
        pairs = [(PrivateKey.generate(), PrivateKey.generate().public_key) for _ in range(BATCH)]
        return self._handle(DISPATCH, [messages.to_server(*pair, 20, os.urandom(200)) for pair in pairs])
