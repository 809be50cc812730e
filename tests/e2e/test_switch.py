"""docs/operating/takeover.md, step by step: the reference's database, import, shadow, stop, switch."""

import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from support import reference_database as made
from support.reference_database import KEY
from wakupush.devnet.demo import messages
from wakupush.devnet.demo.conversation import open_reply
from wakupush.devnet.demo.observer import Observer
from wakupush.devnet.demo.stack import SHARDS, Stack
from wakupush.devnet.parts.processes import StartFailedError, wait_until
from wakupush.pb.push_notification_pb2 import PushNotificationQueryResponse, PushNotificationRegistrationResponse
from wakupush.protocol import application, payload
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.takeover.schema import REGISTRATIONS, REQUESTS
from wakupush.waku.node import WakuNode

SERVER = KEY.public_key
#: Seconds; ten times what a quiet machine takes.
PATIENCE = 120

pytestmark = pytest.mark.timeout(900)


class Reference:
    """The other server, as far as we see it: its database, and what it pushed. It answers to keys that nobody reads."""

    def __init__(self, path, rows):
        self.path = made.make(path, rows)
        self.pushed = []

    def register(self, client, content):
        with closing(sqlite3.connect(self.path)) as database, database:
            row = made.row(client, content)
            database.execute(f"REPLACE INTO {REGISTRATIONS} VALUES (?, ?, ?, ?)", row)

    def unregister(self, client, content):
        with closing(sqlite3.connect(self.path)) as database, database:
            row = (*made.row(client, content)[:3], None)
            database.execute(f"REPLACE INTO {REGISTRATIONS} VALUES (?, ?, ?, ?)", row)

    def push(self, request):
        opened = application.read(payload.open_asymmetric(request.payload, KEY))
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(f"INSERT INTO {REQUESTS} VALUES (?)", [opened.message_id])
        self.pushed.append(request)


class World:
    """The server beside the reference, and the eyes of its clients."""

    def __init__(self, stack, reference):
        self.stack, self.reference = stack, reference
        self.node = WakuNode(stack.node_url)
        self.observer = Observer(stack.node_url, stack.gorush_url)
        self.versions = {}
        self.replies, self.pushes = [], []

    def send(self, *sent):
        """Send messages, and wait until the server is done with them."""
        with self.stack.connect() as connection:
            for message in sent:
                self.node.publish(SHARDS[0], message)
            for message in sent:
                wait_until(
                    lambda message=message: self.stack.is_handled(
                        connection, message_hash(SHARDS[0], message), message.content_topic
                    ),
                    timeout=PATIENCE,
                    what="a message is handled",
                )
        self.look()

    def look(self):
        """Take note of the versions, which never become lower."""
        for key, installation, version in self.rows("SELECT key_hash, installation_hash, version FROM registrations"):
            assert version >= self.versions.get((key, installation), 0)
            self.versions[key, installation] = version

    def rows(self, query):
        with self.stack.connect() as connection:
            return connection.execute(query).fetchall()

    def seen(self, clients):
        """Return all answers to clients, and the device tokens of all pushes, since the beginning."""
        found = (open_reply(seen.message, clients) for seen in self.observer.messages())
        self.replies += [reply for reply in found if reply]
        self.pushes += [push.notification["tokens"][0] for push in self.observer.pushes()]
        return self.replies, self.pushes


@pytest.fixture
def world(tmp_path, forkserver):
    """The parts, with the schema; nothing of the server runs yet."""
    directory = Path(tempfile.mkdtemp(prefix="wakupush-e2e-"))
    directory.chmod(0o755)
    stack = Stack(directory, fsync=False, key=KEY, settings={"WAKUPUSH_SHADOW": "true"}, forkserver=forkserver)
    try:
        stack.start_servers()
        world = World(stack, Reference(tmp_path / "reference.db", ()))
        yield world
        world.node.close()
        world.observer.close()
        stack.stop()
        log = stack.postgres.log.read_text(errors="replace")
        assert [line for line in log.splitlines() if "permission denied" in line] == []
    finally:
        stack.stop()
        shutil.rmtree(directory, ignore_errors=True)


def asked(client, content):
    return messages.request(client, SERVER, [messages.notification(client.public_key.key_hash, content)])


def again(request):
    """Return the same request in a new envelope."""
    opened = payload.open_asymmetric(request.payload, KEY)
    sealed = payload.seal_asymmetric(opened.data, SERVER, PrivateKey.generate())
    return type(request)(payload=sealed, content_topic=request.content_topic, timestamp=time.time_ns())


def test_taking_over_step_by_step(world, tmp_path):
    stack, reference = world.stack, world.reference
    clients = [PrivateKey.generate() for _ in range(6)]
    contents = {client: messages.registration(client, SERVER) for client in clients}
    old, leaving, newer, new, late, asker = clients
    for client in (old, leaving, newer):
        reference.register(client, contents[client])

    # A first copy, while the reference runs.
    stack.run("import", "reference", str(shutil.copy(reference.path, tmp_path / "copy.db")))
    assert world.rows("SELECT count(*) FROM registrations") == [(3,)]
    world.look()

    # In shadow: both read the same.
    for process in (stack.feedback, *stack.workers.values(), stack.beat, stack.ingest, stack.reconcile):
        process.start()
    contents[newer] = messages.registration(newer, SERVER, version=2, installation_id=contents[newer].installation_id)
    gone = messages.registration(
        leaving, SERVER, version=2, unregister=True, installation_id=contents[leaving].installation_id
    )
    world.send(*(messages.register(client, SERVER, contents[client]) for client in (newer, new)))
    world.send(messages.register(leaving, SERVER, gone))
    for client in (newer, new):
        reference.register(client, contents[client])
    reference.unregister(leaving, gone)
    before, within = asked(old, contents[old]), asked(new, contents[new])
    world.send(before)
    world.rows("UPDATE shadowed_messages SET seen_at = seen_at - interval '70 s' RETURNING 1")  # as if so long ago
    world.send(within)
    reference.push(within)
    stack.run("import", "reference", str(shutil.copy(reference.path, tmp_path / "copy.db")), "--compare")
    assert world.seen(clients) == ([], [])
    assert world.rows("SELECT (SELECT count(*) FROM answers) + (SELECT count(*) FROM deliveries)") == [(0,)]

    # The reference is stopped; what comes then it never sees.
    stopped_at = time.time()
    after = [asked(old, contents[old]), messages.register(late, SERVER, contents[late])]
    world.send(*after)
    query = messages.query(asker, old.public_key.key_hash)
    world.send(query)
    stack.run("import", "reference", str(reference.path))
    assert world.seen(clients) == ([], [])

    # The switch.
    stack.run("shadow", "end", "--reference-stopped-at", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stopped_at)))

    def answered():
        replies, pushes = world.seen(clients)
        return len(replies) >= 3 and len(pushes) >= 1

    wait_until(answered, timeout=PATIENCE, what="what came between the two is answered and pushed")
    replies, pushes = world.seen(clients)
    by_client = {reply.recipient: reply for reply in replies}
    assert PushNotificationRegistrationResponse.FromString(by_client[late.public_key].inner).success
    [device] = PushNotificationQueryResponse.FromString(by_client[asker.public_key].inner).info
    assert device.installation_id == contents[old].installation_id
    assert old.public_key in by_client
    assert pushes == [contents[old].device_token]
    world.look()

    # No request of before gets a second push, in whatever envelope; every device gets those that are new.
    world.send(again(before), again(within), again(after[0]))
    staying = [client for client in clients if client not in (leaving, asker)]
    world.send(*(asked(client, contents[client]) for client in (*staying, leaving)))
    expected = sorted(contents[client].device_token for client in (old, *staying))
    wait_until(lambda: len(world.seen(clients)[1]) >= len(expected), timeout=PATIENCE, what="every device is pushed")
    assert sorted(world.seen(clients)[1]) == expected
    assert world.rows("SELECT count(*) FROM shadowed_messages") == [(0,)]
    without_the_setting(world, old, contents[old])


def without_the_setting(world, client, content):
    """After the switch a process that is started to be in shadow ends; one that is not answers and pushes."""
    stack = world.stack
    world.rows("UPDATE shadow SET ended_at = ended_at - interval '2 minutes' RETURNING 1")
    stack.workers["dispatch"].stop()
    stray = stack.worker("dispatch")
    with suppress(StartFailedError):
        stray.start()
        stray.wait(timeout=PATIENCE)
    assert stray.has_logged("shadow_over")
    worker = stack.worker("dispatch", settings={"WAKUPUSH_SHADOW": "false"})
    worker.start()
    world.send(asked(client, content))
    pushed = len(world.pushes)
    wait_until(lambda: len(world.seen([client])[1]) > pushed, timeout=PATIENCE, what="a push")
    worker.stop()
    world.look()
