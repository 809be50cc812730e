"""However messages are cut into tasks: at once they leave what they leave one after the other."""

import json
import random
import time
from base64 import b64decode
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest

from support.served import SHARD, request
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, QUERY, QUEUES, REGISTRATION
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration
from wakupush.postgres import maintenance
from wakupush.postgres.migrations import runner
from wakupush.protocol import payload, segments
from wakupush.protocol.application import Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256, message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.limits import Limiter

#: Low enough to be reached by some of the batches.
LIMITS = {"pushes_per_device_per_minute": 4, "answer_bytes_per_user_per_minute": 2000}
#: The one or the other, or a registration that is one too many may leave its place to a later one.
MORE_LIMITS = [{"installations_per_key": 2}, {"first_registrations_per_hour": 7}]
#: Without times, ids that are drawn, and secrets that are sealed anew.
TABLES = {
    "registrations": """SELECT key_hash, installation_hash, version, request_digest, registered, token_type, enabled,
        access_token_digest, muted_chat_digests FROM registrations""",
    "deliveries": "SELECT delivery_key, state, key_hash, installation_hash, failure, trace_id FROM deliveries",
    "admitted_requests": "SELECT message_id, succeeded FROM admitted_requests",
    "ledger": "SELECT message_hash FROM ledger",
    "query_topics": "SELECT key_hash, prefixed, topic, symmetric_key FROM query_topics",
    "answers": "SELECT content_topic FROM answers",
    "waiting_queries": "SELECT message_hash, due_at IS NULL FROM waiting_queries",
    "quarantine": "SELECT message_hash FROM quarantine",
}
POSTING = "SELECT FROM deliveries WHERE state = 'posting'"
EVENTS = """SELECT trace_id, kind, failure, reason, platform, queue, key_pseudonym, installation_pseudonym
    FROM delivery_history, generate_series(1, count)"""


@pytest.fixture
def two_servers(open_server, empty_dsn, seed):
    """Servers of one identity, each with a database of its own."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        runner.migrate(connection)
        maintenance.create_partitions(connection, datetime.now(UTC).date())
    settings = {"limits": LIMITS | MORE_LIMITS[seed % 2], "breaker": {"faults": 1000}, "gorush": {"concurrency": 8}}
    first, second = open_server(**settings), open_server(**settings, postgres={"dsn": empty_dsn})
    now = time.time()
    for server in (first, second):
        limiter = Limiter(server.context.redis, draw=lambda: 0.999, now=lambda: now)
        identity = first.context.identity
        server.context = replace(server.context, identity=identity, limiter=limiter, now=lambda: now)
        server.key = identity.public_key
    return first, second


class World:
    """Users, of whom some registered before, and messages of theirs; the same seed draws alike, under other keys."""

    def __init__(self, server, seed):
        self.server, self.random = server, random.Random(seed)
        self.users = [PrivateKey.generate() for _ in range(3)]
        self.phones = [f"{number:08x}-8a40-4ceb-b88e-5acbf94501ad" for number in range(4)]
        self.contents = {}
        for user, phone, token in ((0, 0, "phone"), (0, 1, "unavailable"), (1, 0, "tablet")):
            fields = {"muted_chat_list": [b"muted"], "device_token": token}
            self.contents[self.users[user], phone] = self.registration(self.users[user], phone, 2, **fields)
        self.registered = [self.register(user, each) for (user, _), each in self.contents.items()]
        self.unregistration = self.register(self.users[1], self.registration(self.users[1], 1, 2, unregister=True))
        self.before = [*self.registered, self.unregistration]
        self.requests = [self.request() for _ in range(2)]

    @property
    def clients(self):
        return self.users

    def registration(self, user, phone, version, **fields):
        kind = self.random.choice([PushNotificationRegistration.APN_TOKEN, PushNotificationRegistration.FIREBASE_TOKEN])
        fields = {"token_type": kind, "installation_id": self.phones[phone], "version": version, **fields}
        return messages.registration(user, self.server.key, **fields)

    def register(self, user, content):
        return messages.register(user, self.server.key, content)

    def anybody(self):
        """Return a registration that others do not bear on."""
        return self.register(self.users[2], self.registration(self.users[2], 0, 1))

    def request(self, items=None, **fields):
        items = self.items(self.random.randint(0, 4)) if items is None else items
        return messages.request(self.random.choice(self.users), self.server.key, items, **fields)

    def items(self, count):
        (user, _), content = self.random.choice(list(self.contents.items()))
        strange = [
            {"access_token": "wrong"},
            {"installation_id": self.phones[3]},
            {"public_key": self.users[2].public_key.key_hash},
            {"type": PushNotification.MENTION},
            {"type": 99},
            {"type": 0},
            {"chat_id": b"muted"},
        ]
        fields = [{}, {}, {}, {"message": b"same", "chat_id": b"same"}, *strange]
        return [
            messages.notification(user.public_key.key_hash, content, **self.random.choice(fields)) for _ in range(count)
        ]

    def anew(self, message, signer=None):
        """Return a message in a new envelope."""
        return replace(message, payload=payload.seal_asymmetric(self.data(message), self.server.key, signer))

    def data(self, message):
        return payload.open_asymmetric(message.payload, self.server.context.identity.private_key).data

    def parts(self, message, signer):
        data = self.data(message)
        split = segments.split(data, -(-len(data) // self.random.randint(2, 4)))
        return [replace(message, payload=payload.seal_asymmetric(part, self.server.key, signer)) for part in split]

    # Batches.

    def registrations(self):
        """Return registrations of all kinds, in any order."""
        some = []
        for _ in range(12):
            user, phone, version = self.random.choice(self.users), self.random.randrange(4), self.random.randint(1, 4)
            fields = self.random.choice([{}, {}, {}, {"unregister": True}, {"device_token": ""}, {"grant": b""}])
            some.append(self.register(user, self.registration(user, phone, version, **fields)))
        again = self.random.choice([*some[:4], *self.before])
        some += [self.anew(each) for each in (*self.random.choices([*some, *self.before], k=4), *[again] * 5)]
        undecryptable = messages.to_server(self.users[0], self.server.key, Type.PUSH_NOTIFICATION_REGISTRATION, b"x")
        return [*some, self.random.choice(some), undecryptable, self.request()]

    def queries(self):
        """Return queries for one and for several, who are known and who are not."""
        keys = [user.public_key.key_hash for user in self.users]
        key_lists = [self.random.sample(keys, self.random.randint(1, 3)) for _ in range(10)]
        key_lists += [[keys[0], *[bytes(64)] * 1000], [keys[1], b"short"]]
        some = [messages.query(self.random.choice(self.users), *each) for each in key_lists]
        to_us = messages.to_server(self.users[0], self.server.key, 4711, b"x")
        return [*some, self.random.choice(some), self.request(), to_us]

    def pushes(self):
        """Return requests, some of them the same in several envelopes, or admitted before."""
        some = [self.request() for _ in range(6)]
        some.append(self.request(self.items(101)))
        # No more of each than are answered a minute.
        twins = [self.anew(each, self.users[2]) for each in (*some[:3], some[0], some[-1], *self.requests)]
        return [*some, *twins, self.request([], message_id=b""), self.anybody()]

    def batch(self, queue):
        batch_messages = {REGISTRATION: self.registrations, QUERY: self.queries, DISPATCH: self.pushes}[queue]()
        batch_messages += [
            replace(batch_messages[0], payload=garbage)
            for garbage in (b"", batch_messages[0].payload[:-1], b"\4" * 200)
        ]
        if queue is not QUERY:
            for message in self.random.sample(batch_messages[:6], 3):
                parts = self.parts(message, self.random.choice([*self.users, None]))
                batch_messages += [*parts, self.anew_part(parts)]
            batch_messages += self.parts(batch_messages[0], self.users[1])[1:]
            # For another queue, which the last one of them is passed on to.
            batch_messages += self.parts({REGISTRATION: self.request, DISPATCH: self.anybody}[queue](), None)
        self.random.shuffle(batch_messages)
        return batch_messages

    def anew_part(self, parts):
        part = self.random.choice(parts)
        content = payload.open_asymmetric(part.payload, self.server.context.identity.private_key)
        signer = next((user for user in self.users if user.public_key == content.signer), None)
        return replace(part, payload=payload.seal_asymmetric(content.data, self.server.key, signer))

    def names(self, batch):
        """Return the hash of the application message, by the trace ids of its envelopes."""
        hashes = {}
        for entry in batch:
            with suppress(Refused):
                data = self.data(entry.message)
                part = segments.parse(data)
                hashes[entry.trace_id] = part.entire_message_hash if part else keccak256(data)
        return hashes


def entries(sent_messages):
    return [Entry(SHARD, message_hash(SHARD, message), time.time(), message) for message in sent_messages]


def handle(server, queue, batch):
    """Handle messages, and wait for the posts that outlast them."""
    server.run(queue, batch)
    wait_until(lambda: not server.rows(POSTING), timeout=10, what="posts end")


def end_state(server, clients):
    """Return everything that messages left."""
    state = {name: Counter(server.rows(query)) for name, query in TABLES.items() if name != "registrations"}
    state["registrations"] = {row[:2]: row[2:] for row in server.rows(TABLES["registrations"])}
    at_rest = server.context.identity.at_rest
    parts = server.rows("SELECT signer, entire_message_hash, index, payload FROM message_segments")
    state["segments"] = {row[:3]: at_rest.open_part(*row) for row in parts}
    state["events"] = Counter(server.rows(EVENTS))
    replies = server.answers(*clients)
    assert {reply.signer for reply in replies} <= {server.key}
    state["replies"] = Counter((str(reply.recipient), reply.type_name, reply.inner) for reply in replies)
    state["passed on"] = {queue.name: waiting(server, queue) for queue in QUEUES.values()}
    assert not {(bytes.fromhex(hash_),) for each in state["passed on"].values() for hash_ in each} & {*state["ledger"]}
    # The lease at the end of a name is random.
    notifications = [push.notification | {"notif_id": push.notification["notif_id"][:66]} for push in server.pushes()]
    state["pushes"] = Counter(json.dumps(each, sort_keys=True) for each in notifications)
    return state


def told_once(events, names):
    """Return events without those that tell once more what became of the items of a request.

    The same request in two envelopes is decided once if they come at once, and its items that failed are tried anew if
    they come one after the other; both answers tell the same.
    """
    items = {"refused", "filtered"}
    once = {(names.get(trace_id), *rest) for trace_id, *rest in events if rest[0] in items}
    return Counter({each: count for each, count in events.items() if each[1] not in items}) + Counter(once)


def waiting(server, queue):
    """Return the hashes of the messages that wait in a queue."""
    bodies = [json.loads(b64decode(json.loads(raw)["body"])) for raw in server.context.redis.lrange(queue.name, 0, -1)]
    return Counter(entry["hash"] for (batch,), named, _ in bodies for entry in batch if not named)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("queue", QUEUES.values(), ids=lambda queue: queue.name)
def test_a_batch_leaves_what_single_messages_leave(two_servers, queue, seed):
    world = World(two_servers[0], seed)
    earlier = [(REGISTRATION, entries(world.before)), (DISPATCH, entries(world.requests))]
    batch = entries(world.batch(queue))
    end_states = []
    for server, step in zip(two_servers, (len(batch), 1), strict=True):
        server.context.redis.flushall()
        server.answers(*world.clients)
        for queue_before, entries_before in earlier:
            for each in entries_before:
                server.run(queue_before, [each])
        server.derive()
        assert len(server.answers(*world.clients)) == len(world.before) + len(world.requests)
        server.pushes()
        for start in range(0, len(batch), step):
            handle(server, queue, batch[start : start + step])
        end_states.append(end_state(server, world.clients))
        if queue is DISPATCH:
            end_states[-1]["events"] = told_once(end_states[-1]["events"], world.names(batch))
    for name, expected in end_states[1].items():
        assert end_states[0][name] == expected, name


@pytest.mark.parametrize("size", [1, 2])
def test_unregistering_ends_deliveries_in_the_same_batch(server, client, size):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert server.rows("SELECT state FROM deliveries") == [("pending",)]
    fields = {"installation_id": content.installation_id}
    contents = [
        PushNotificationRegistration(unregister=True, version=2, **fields),
        messages.registration(client, server.key, version=3, **fields),
    ]
    registrations = [messages.register(client, server.key, each) for each in contents]
    for start in range(0, 2, size):
        server.handle(REGISTRATION, *registrations[start : start + size])
    assert server.outcomes(client)[1:] == ["success"] * 2
    assert server.rows("SELECT state FROM deliveries") == []
