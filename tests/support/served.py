"""The server's use cases called directly, and what a client and an operator see of them."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx2

from support import stored
from support.rows import IOS
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.model.entries import Entry
from wakupush.model.failures import Route
from wakupush.model.queues import DISPATCH, QUEUES, REGISTRATION, REST
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistrationResponse,
    PushNotificationReport,
    PushNotificationResponse,
)
from wakupush.postgres import query_topics
from wakupush.protocol import payload, segments, topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import watched
from wakupush.redis.sending import decode_entry
from wakupush.server.beat.beat import Beat
from wakupush.server.beat.pace import Pace
from wakupush.server.beat.queries import derive_keys
from wakupush.server.engine import isolation
from wakupush.server.errors import is_outage

SHARD = "/waku/2/rs/16/32"
Registered = PushNotificationRegistrationResponse
Report = PushNotificationReport


class AtEnd:
    """Does what is given to `wakupush.server.engine.background.Later` once a task is followed up, whatever its time."""

    def __init__(self):
        self.waiting = []

    def do(self, due_time, _size, work, item):
        self.waiting.append((due_time, work, item))

    def wait_until(self, due_time):
        """Let the time pass."""

    def end(self):
        """Do all that waits, and return when it was due, in seconds from now."""
        waiting, self.waiting = self.waiting, []
        for _, work, item in waiting:
            work([item])
        return [due_time - time.monotonic() for due_time, _, _ in waiting]

    def close(self):
        """End nothing."""


class Server:
    """A worker's context, and the eyes of a client."""

    def __init__(self, context, observer):
        self.context, self.observer = context, observer
        self.threads = ThreadPoolExecutor(2)
        #: In how many seconds the answers of the last task were to leave once more.
        self.repeated = []
        self.key = context.identity.public_key

    def handle(self, queue, *messages, seen=None, alone=False):
        entries = [Entry(SHARD, message_hash(SHARD, message), seen or time.time(), message) for message in messages]
        self.run(queue, entries, alone=alone)

    def run(self, queue, entries, *, alone=False, is_rest=False):
        """Do what a worker does with a task, to the end of what follows."""
        isolation.handle(self.context, queue, entries, alone=alone, is_rest=is_rest)
        self.context.followers.wait()
        self.context.answers.end()
        self.repeated = self.context.repeats.end()

    def handle_enqueued(self, queue):
        """Handle the tasks that wait in a queue."""
        redis = self.context.redis
        while raw := redis.rpop(queue.name):
            entries, named = read_task(raw)
            self.run(queue, entries, **named)

    def answers(self, *clients):
        """Return the opened answers since the last call."""
        replies = (open_reply(arrival.message, clients) for arrival in self.observer.messages())
        return [reply for reply in replies if reply]

    def outcomes(self, *clients):
        """Return the error names of registration responses, and lists of them of notification responses."""
        results = []
        for reply in self.answers(*clients):
            if reply.type_name.endswith("REGISTRATION_RESPONSE"):
                response = Registered.FromString(reply.inner)
                results.append("success" if response.success else Registered.ErrorType.Name(response.error))
            else:
                reports = PushNotificationResponse.FromString(reply.inner).reports
                results.append(["success" if r.success else Report.ErrorType.Name(r.error) for r in reports])
        return results

    def counted(self, limit):
        """Return how often something was counted against a limit."""
        redis = self.context.redis
        return sum(int(redis.hget(key, "number")) for key in redis.keys(f"wakupush:limit:{limit}:*"))

    def pushes(self):
        return self.observer.pushes()

    def register(self, client, **fields):
        content = messages.registration(client, self.key, **fields)
        self.handle(REGISTRATION, messages.register(client, self.key, content))
        assert self.outcomes(client) == ["success"]
        self.derive()
        return content

    def renew(self, client, content, version=2, **fields):
        """Register a device once more."""
        same = {"installation_id": content.installation_id, "access_token": content.access_token}
        return self.register(client, version=version, **same | fields)

    def derive(self):
        """Derive the keys of query topics, as the schedule does in time; queries that wait for one are due then."""
        with self.context.pool.connection() as connection:
            users = query_topics.without_key(connection, b"", prefixed=False, most=1000)
            keys = {user: topics.symmetric_key(topics.query_topics(user)[0]) for user in users}
            query_topics.set_keys(connection, keys, prefixed=False)
        while self.rows("SELECT FROM waiting_queries WHERE due_at IS NULL"):
            derive_keys(self.context)

    def rows(self, query, *parameters):
        with self.context.pool.connection() as connection:
            return connection.execute(query, parameters).fetchall()

    def reroute(self, device_token, **which):
        """Give devices another device token; see `stored.reroute`."""
        with self.context.pool.connection() as connection:
            stored.reroute(connection, self.context.identity, device_token, **which)

    def devices(self):
        """Return what is sealed of each registered device."""
        with self.context.pool.connection() as connection:
            return list(stored.devices(connection, self.context.identity).values())

    def events(self, kind):
        """Return failure and reason of each message or notification that something happened to, oldest first."""
        counted = (
            "SELECT failure, reason FROM delivery_history, generate_series(1, count) WHERE kind = %s ORDER BY time"
        )
        return self.rows(counted, kind)


def read_task(raw):
    """Return the entries of a task in Redis, and its named arguments."""
    (entries,), named, _ = json.loads(b64decode(json.loads(raw)["body"]))
    return list(map(decode_entry, entries)), named


def work_off_rest(server):
    """Do what the pool `rest` does until its queue is empty; return the queue of each task."""
    worked_off = []
    while raw := server.context.redis.rpop(REST):
        entries, named = read_task(raw)
        [queue] = [queue for queue in QUEUES.values() if queue.task == json.loads(raw)["headers"]["task"]]
        server.run(queue, entries, is_rest=True, **named)
        worked_off.append(queue)
    return worked_off


def work_off(server, queue):
    """Do what workers do with the messages of a queue until it is empty; return how many tasks came back as outages."""
    returned = 0
    for _ in range(50):
        if not (raw := server.context.redis.rpop(queue.name)):
            return returned
        entries, named = read_task(raw)
        try:
            server.run(queue, entries, **named)
        except Exception as error:
            if not is_outage(error):
                raise
            server.context.redis.lpush(queue.name, raw)
            returned += 1
    raise AssertionError("messages come back for ever")


def request(client, server, registered, **fields):
    item = messages.notification(client.public_key.key_hash, registered, **fields)
    return messages.request(client, server.key, [item])


def prove(client, server, registered):
    """Let a push reach a device: from then on its failures say something about the route."""
    server.handle(DISPATCH, request(client, server, registered))
    assert [push.outcome for push in server.pushes()] == ["delivered"]
    assert server.outcomes(client) == [["success"]]
    server.rows("DELETE FROM deliveries RETURNING 1")


def rewrapped(message, server):
    """Return the same application message in a new envelope, as anybody who recorded it can make."""
    opened = payload.open_asymmetric(message.payload, server.context.identity.private_key)
    sealed = payload.seal_asymmetric(opened.data, server.key, PrivateKey.generate())
    return replace(message, payload=sealed)


def count_watched(redis):
    """Return how many query topics are watched."""
    return sum(map(len, redis.hvals(watched.KEY))) // 2


def in_segments(message, server, size, sign_with) -> list[WakuMessage]:
    """Return a message in parts, in several envelopes."""
    data = payload.open_asymmetric(message.payload, server.context.identity.private_key).data
    return [
        replace(message, payload=payload.seal_asymmetric(part, server.key, sign_with))
        for part in segments.split(data, size)
    ]


def waiting(server, queue):
    """Return the payloads and the keyword arguments of the tasks of a queue."""
    tasks = [json.loads(raw) for raw in server.context.redis.lrange(queue.name, 0, -1)]
    bodies = [json.loads(b64decode(task["body"])) for task in tasks]
    return [([b64decode(entry["payload"]) for entry in entries], named) for (entries,), named, _ in bodies]


def is_due(server):
    """Make everything due that waits, and return what the schedule claims, as `deliver` takes it."""
    rows = server.rows("UPDATE deliveries SET next_attempt_at = now() WHERE state = 'pending' RETURNING delivery_key")
    assert rows
    return dict(server.rows("SELECT delivery_key, attempt FROM deliveries WHERE state = 'pending'"))


def fault(gorush, **fields):
    httpx2.post(f"{gorush}/dev/faults", json={"path": "/api/push", **fields}).raise_for_status()


def as_beat(context):
    """Return what beat works with, for a worker's context; it has enqueued nothing before."""
    return Beat(
        settings=context.settings,
        pool=context.pool,
        redis=context.redis,
        app=context.app,
        outbox=context.outbox,
        breaker=context.posts.breaker,
        pace=Pace(),
    )


def trip(breaker, app_platform=IOS, faults=5):
    """Open the breaker of an app and platform by faults in a row."""
    for _ in range(faults):
        breaker.note(app_platform, [Route.BROKEN], probe=False)


def contacts(count: int) -> dict:
    """Return the fields of a registration that lets these many contacts push: an answer shows 68 bytes of each."""
    return {"allow_from_contacts_only": True, "allowed_key_list": [bytes(64)] * count}
