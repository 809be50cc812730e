"""docs/operating/takeover.md, step by step: import beside the reference, stop it, import again, start."""

import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from support import reference_database
from support.reference_database import KEY
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import StartFailedError, wait_until
from wakupush.devnet.stack import SHARDS, Stack
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistrationResponse,
    PushNotificationResponse,
)
from wakupush.protocol import application, payload
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.takeover.schema import REGISTRATIONS, REQUESTS
from wakupush.waku.node import WakuNode

SERVER = KEY.public_key
#: Seconds; ten times what a quiet machine takes.
PATIENCE = 120
#: Seconds since the reference was stopped: longer than a query or a request is looked at unless the settings say so.
GAP = 7200
#: What the page says: the time since the stop, and some minutes.
WINDOW = str(GAP + 600)
SETTINGS = {
    "WAKUPUSH_RECONCILE__WINDOW": WINDOW,
    "WAKUPUSH_RECONCILE__QUERY_WINDOW": WINDOW,
    "WAKUPUSH_DELIVERY__REQUEST_MAX_AGE": WINDOW,
}

pytestmark = pytest.mark.timeout(600)


class Reference:
    """The other server, as far as we see it: its database, and what it pushed."""

    def __init__(self, path):
        self.path = reference_database.make(path)
        self.pushed = []

    def register(self, client, content, *, registered=True):
        row = reference_database.row(client, content)
        with closing(sqlite3.connect(self.path)) as database, database:
            row = row if registered else (*row[:3], None)
            database.execute(f"REPLACE INTO {REGISTRATIONS} VALUES (?, ?, ?, ?)", row)

    def push(self, request, content):
        opened = application.read(payload.open_asymmetric(request.payload, KEY))
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(f"INSERT INTO {REQUESTS} VALUES (?)", [opened.message_id])
        self.pushed.append(content.device_token)


class World:
    """The parts, the server whose processes do not run yet, and the eyes of its clients."""

    def __init__(self, stack):
        self.stack = stack
        self.node = WakuNode(stack.node_url)
        self.node.subscribe(SHARDS)
        self.observer = Observer(stack.node_url, stack.gorush_url)
        self.replies, self.pushes = [], []

    def send(self, *published_messages, ago=0.0):
        """Send messages as if so many seconds ago; return their hashes and topics."""
        hashes = []
        for message in published_messages:
            old = replace(message, timestamp=message.timestamp - int(ago * 1e9))
            self.node.publish(SHARDS[0], old)
            hashes.append((message_hash(SHARDS[0], old), old.content_topic))
        return hashes

    def is_handled(self, *hashes):
        """Say whether the server is done with all of these messages."""
        with self.stack.connect() as connection:
            return all(self.stack.is_handled(connection, *each) for each in hashes)

    def wait(self, hashes):
        wait_until(lambda: self.is_handled(*hashes), timeout=PATIENCE, what="all messages are handled")

    def look(self, clients):
        """Note all answers to clients, and the device tokens of all pushes."""
        replies = (open_reply(arrival.message, clients) for arrival in self.observer.messages())
        self.replies += [reply for reply in replies if reply]
        self.pushes += [push.notification["tokens"][0] for push in self.observer.pushes()]

    def versions(self):
        with self.stack.connect() as connection:
            return dict(connection.execute("SELECT installation_hash, version FROM registrations").fetchall())


@pytest.fixture
def world(forkserver):
    directory = Path(tempfile.mkdtemp(prefix="wakupush-e2e-"))
    directory.chmod(0o755)
    stack = Stack(directory, fsync=False, key=KEY, settings=SETTINGS, launcher=forkserver.fork)
    try:
        stack.start_servers()
        world = World(stack)
        yield world
        world.node.close()
        world.observer.close()
        stack.stop()
        log = stack.postgres.log.read_text(errors="replace")
        assert [line for line in log.splitlines() if "permission denied" in line] == []
    finally:
        stack.stop()
        shutil.rmtree(directory, ignore_errors=True)


def push_request(client, content):
    return messages.request(client, SERVER, [messages.notification(client.public_key.key_hash, content)])


def again(request):
    """Return the same request in a new envelope."""
    opened = payload.open_asymmetric(request.payload, KEY)
    sealed = payload.seal_asymmetric(opened.data, SERVER, PrivateKey.generate())
    return type(request)(payload=sealed, content_topic=request.content_topic, timestamp=time.time_ns())


def test_nothing_is_lost_and_nothing_pushed_twice(world, tmp_path):
    stack, reference = world.stack, Reference(tmp_path / "reference.db")
    clients = [PrivateKey.generate() for _ in range(6)]
    old, leaving, newer, new, late, asker = clients
    contents = {client: messages.registration(client, SERVER) for client in clients}
    for client in (old, leaving, newer):
        reference.register(client, contents[client])

    # A copy is imported and compared while the reference runs.
    copy = str(shutil.copy(reference.path, tmp_path / "copy.db"))
    stack.run("import", "reference", copy)
    stack.run("import", "reference", copy, "--compare")

    # The reference goes on: all of this is in the Store, and in its database. The first lies before the window.
    earlier = world.send(messages.register(old, SERVER, contents[old]), ago=GAP + 1200)
    contents[newer] = messages.registration(newer, SERVER, version=2, installation_id=contents[newer].installation_id)
    unregistration = messages.registration(
        leaving, SERVER, version=2, unregister=True, installation_id=contents[leaving].installation_id
    )
    before = [push_request(old, contents[old]), push_request(newer, contents[newer])]
    registrations = [messages.register(client, SERVER, contents[client]) for client in (newer, new)]
    handled = world.send(*registrations, messages.register(leaving, SERVER, unregistration), *before, ago=GAP + 60)
    for client in (newer, new):
        reference.register(client, contents[client])
    reference.register(leaving, unregistration, registered=False)
    for request, client in zip(before, (old, newer), strict=True):
        reference.push(request, contents[client])

    # It is stopped; this it never sees.
    push = push_request(new, contents[new])
    gap = [messages.register(late, SERVER, contents[late]), messages.query(asker, old.public_key.key_hash), push]
    handled += world.send(*gap, push_request(leaving, contents[leaving]), ago=GAP - 60)
    handled += world.send(again(before[0]), ago=GAP / 2)
    with pytest.raises(StartFailedError):
        stack.run("import", "reference", str(reference.path), "--compare")
    stack.run("import", "reference", str(reference.path))
    stack.run("import", "reference", str(reference.path), "--compare")
    versions = world.versions()
    world.node.read(SHARDS[0])  # no ingest heard any of this: it is in the Store alone

    for process in (stack.feedback, *stack.workers.values(), stack.beat, stack.ingest, stack.reconcile):
        process.start()
    world.wait(handled)

    questions = [
        (late, "PUSH_NOTIFICATION_REGISTRATION_RESPONSE"),
        (asker, "PUSH_NOTIFICATION_QUERY_RESPONSE"),
        (new, "PUSH_NOTIFICATION_RESPONSE"),
    ]

    def answered():
        world.look(clients)
        inner = {(reply.recipient, reply.type_name): reply.inner for reply in world.replies}
        return [inner.get((client.public_key, kind)) for client, kind in questions]

    wait_until(lambda: all(answered()), timeout=PATIENCE, what="what came meanwhile is answered")
    registered, queried, pushed = answered()
    assert PushNotificationRegistrationResponse.FromString(registered).success
    [device] = PushNotificationQueryResponse.FromString(queried).info
    assert device.installation_id == contents[old].installation_id
    [report] = PushNotificationResponse.FromString(pushed).reports
    assert report.success
    assert world.versions().items() >= versions.items()

    # No request gets a second push, in whatever envelope; every device gets those that are new.
    world.wait(world.send(*map(again, [*before, push])))
    staying = [old, newer, new, late]
    world.wait(world.send(*(push_request(client, contents[client]) for client in (*staying, leaving))))
    expected = sorted([contents[new].device_token, *(contents[client].device_token for client in staying)])
    wait_until(
        lambda: world.look(clients) or len(world.pushes) >= len(expected),
        timeout=PATIENCE,
        what="every device gets its push",
    )
    assert sorted(world.pushes) == expected
    assert not world.is_handled(*earlier)
    assert reference.pushed == [contents[old].device_token, contents[newer].device_token]
