"""Secrets are planted, everything runs; then logs, Redis, events of Celery and of deliveries, metrics are searched."""

import base64
import json
import re
import secrets
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from celery.events import EventReceiver
from redis import Redis

from e2e.stacks import wakupush
from support import stored
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import payload, segments
from wakupush.protocol.grants import grant
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.settings import RedisSettings, Settings
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(
        worker_module="poisoned_worker",
        settings={
            "PYTHONPATH": str(Path(__file__).parent),
            "WAKUPUSH_HTTP_PORT": "0",
            "WAKUPUSH_LOG_LEVEL": "DEBUG",
            "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.1",
            "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "3",
        },
    )


@contextmanager
def celery_events(stack, into):
    """Receive everything that workers tell Flower."""
    app = celery_app(Settings(redis=RedisSettings(url=stack.redis_url)))
    connection = app.connection()
    receiver = EventReceiver(connection, handlers={"*": lambda event: into.append(repr(event))}, app=app)

    def receive():
        while not receiver.should_stop:
            with suppress(TimeoutError):
                receiver.capture(limit=None, timeout=0.5, wakeup=False)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        yield
    finally:
        # A flag of our own would be read only in a pause, and heartbeats of several workers may leave none.
        receiver.should_stop = True
        thread.join()
        connection.release()
        app.close()


class Planted:
    """Secrets that a client hands over, in every form in which they might turn up."""

    def __init__(self):
        self.forms = {}

    def plant(self, what, secret):
        data = secret if isinstance(secret, bytes) else secret.encode()
        self.forms[what] = {
            data,
            data.hex().encode(),
            data.hex().upper().encode(),
            base64.b64encode(data),
            base64.urlsafe_b64encode(data).rstrip(b"="),
            repr(data)[2:-1].encode(),
        }
        return secret

    def found_in(self, where, content):
        content = content if isinstance(content, bytes) else content.encode()
        return {(where, what) for what, forms in self.forms.items() if any(form in content for form in forms)}


def test_no_secret_leaves_its_place(stack):
    planted = Planted()
    server = stack.key.public_key
    planted.plant("server's key", stack.key.secret)
    events = []
    observer = Observer(stack.node_url, stack.gorush_url)
    clients = [PrivateKey.generate() for _ in range(4)]
    dump, devices = [], []
    with celery_events(stack, events), WakuNode(stack.node_url) as node, Redis.from_url(stack.redis_url) as redis:
        # Delivered, dead, failing in passing until there is no attempt left, rejected.
        for client, prefix in zip(clients, ("", "dead-", "unavailable-", "bad-"), strict=True):
            planted.plant(f"client's key {prefix}", client.secret)
            token = planted.plant(f"device token {prefix}", prefix + secrets.token_hex(20))
            access = planted.plant(f"access token {prefix}", str(messages.uuid.uuid4()))
            blocked = planted.plant(f"blocked chat {prefix}", secrets.token_bytes(64))
            content = messages.registration(
                client, server, device_token=token, access_token=access, blocked_chat_list=[blocked],
                grant=planted.plant(f"grant {prefix}", grant(client, server, access)),
            )  # fmt: skip
            devices.append(content)
            node.publish(SHARDS[0], messages.register(client, server, content))
            _wait_for_answers(observer, clients, 1)
            node.publish(SHARDS[0], messages.query(client, client.public_key.key_hash))
            _wait_for_answers(observer, clients, 1)
            for wrong in (access, planted.plant(f"guess {prefix}", str(messages.uuid.uuid4()))):
                item = _planted_item(planted, f"{prefix}{wrong}", client, content)
                item.access_token = wrong
                node.publish(SHARDS[0], messages.request(client, server, [item]))
                _wait_for_answers(observer, clients, 1)
            dump.append(_everything_in(redis))
        # Faulty ones: each error path has its chance to say too much.
        for fields in ({"device_token": "x\0" + token}, {"grant": b"short"}, {"token_type": 7}, {"version": 0}):
            content = messages.registration(clients[0], server, **fields)
            node.publish(SHARDS[0], messages.register(clients[0], server, content))
            _wait_for_answers(observer, clients, 1)
        with stack.connect() as connection:
            wait_until(
                lambda: connection.execute(
                    "SELECT count(*) FROM deliveries WHERE state = 'dead_letter'"
                ).fetchone() == (1,),
                timeout=120,
                what="a delivery ran out of attempts",
            )  # fmt: skip
            letters = dead_letters(stack, "list", "--json"), dead_letters(stack, "list")
            [key] = [json.loads(line)["delivery_key"] for line in letters[0].splitlines()]
            letters += dead_letters(stack, "show", key, "--json"), dead_letters(stack, "show", key)
            assert all(key[:16] in output for output in letters)
            unregistration = PushNotificationRegistration(
                unregister=True, version=2, installation_id=content.installation_id
            )
            node.publish(SHARDS[0], messages.register(clients[0], server, unregistration))
            _wait_for_answers(observer, clients, 1)
            troubles = _run_into_trouble(
                stack=stack, connection=connection, node=node, observer=observer, planted=planted,
                client=clients[0], registered=devices[0],
            )  # fmt: skip
            table = _table(connection, "delivery_events")
        dump.append(_everything_in(redis))
        redis.save()
    places = {
        **_logs_and_metrics(stack),
        "Celery's events": "".join(events),
        "the events table": table,
        "the dead letters' list and details": "".join(letters),
        **troubles,
        "Redis' keys and values": b"".join(dump),
        "Redis' dump": b"".join(path.read_bytes() for path in (stack.directory / "redis").rglob("*") if path.is_file()),
    }
    observer.close()
    assert len(planted.forms) > 40
    assert len(places["Celery's events"]) > 1000
    assert b"wakupush" in places["Redis' dump"]
    assert b"message_quarantined" in places["the log of worker registration"]
    assert b"RuntimeError" in places["the log of worker registration"]
    assert set().union(*(planted.found_in(where, content) for where, content in places.items())) == set()
    # The search can find: the secrets are where they belong.
    with stack.connect() as connection:
        assert planted.found_in("Postgres", repr(stored.contents(connection, Identity.of(stack.key))))


def _run_into_trouble(*, stack, connection, node, observer, planted, client, registered):
    """Let a message fail, one wait in parts, and gorush be gone; return what is kept in Postgres meanwhile."""
    server = stack.key.public_key
    # The text of its error is the device token, until it is put aside.
    poison = planted.plant("poisonous token", "poison-raise" + secrets.token_hex(20))
    content = messages.registration(client, server, device_token=poison)
    node.publish(SHARDS[0], messages.register(client, server, content))
    _wait_for_rows(connection, "quarantine", 1)
    contents = {"the quarantine": _table(connection, "quarantine")}
    # What waits for the second part is opened already.
    items = [_planted_item(planted, f"segment {number}", client, registered) for number in range(2)]
    first, second = _in_two(messages.request(client, server, items), stack.key)
    node.publish(SHARDS[0], first)
    _wait_for_rows(connection, "message_segments", 1)
    contents["segments that wait"] = _table(connection, "message_segments")
    node.publish(SHARDS[0], second)
    _wait_for_answers(observer, [client], 1)
    # gorush cuts the connection, and the push is tried again.
    fault = {"path": "/api/push", "kind": "close", "times": 1}
    httpx2.post(f"{stack.gorush_url}/dev/faults", json=fault).raise_for_status()
    item = _planted_item(planted, "outage", client, registered)
    node.publish(SHARDS[0], messages.request(client, server, [item]))
    _wait_for_answers(observer, [client], 1)
    _wait_for_rows(connection, "delivery_history WHERE kind = 'unknown' AND failure LIKE 'gorush%'", 1)
    _wait_for_rows(connection, "deliveries WHERE state IN ('pending', 'posting')", 0)
    return contents


def _logs_and_metrics(stack):
    """Return what each process of the server tells."""
    places = {
        "ingest's metrics": httpx2.get(f"{stack.ingest_url}/metrics").text,
        "reconcile's metrics": httpx2.get(f"{stack.reconcile_url}/metrics").text,
    }
    for process in (stack.ingest, stack.reconcile, stack.beat, stack.feedback, *stack.workers.values()):
        places[f"the log of {process.name}"] = process.log.read_bytes()
    for process in (stack.beat, stack.feedback, *stack.workers.values()):
        [port] = {int(port) for port in re.findall(r'"http_port": (\d+)', process.log.read_text())}
        places[f"the metrics of {process.name}"] = httpx2.get(f"http://127.0.0.1:{port}/metrics").text
        assert "wakupush_" in places[f"the metrics of {process.name}"]
    return places


def _planted_item(planted, name, client, registered):
    """Return an item of a request whose fields are planted."""
    return messages.notification(
        client.public_key.key_hash, registered,
        chat_id=planted.plant(f"chat {name}", secrets.token_bytes(64)),
        message=planted.plant(f"message {name}", secrets.token_bytes(99)),
        author=planted.plant(f"author {name}", secrets.token_bytes(64)),
    )  # fmt: skip


def _in_two(message, key):
    """Return a message to the server in two segments."""
    data = payload.open_asymmetric(message.payload, key).data
    parts = segments.split(data, len(data) // 2 + 1)
    return [replace(message, payload=payload.seal_asymmetric(part, key.public_key, key)) for part in parts]


def _wait_for_rows(connection, table, count):
    wait_until(
        lambda: connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,),
        timeout=120,
        what=f"{count} rows of {table}",
    )


def _table(connection, table):
    """Return all rows of a table, as Python and as Postgres write them."""
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    return repr(rows) + repr(connection.execute(f"SELECT {table}::text FROM {table}").fetchall())


def dead_letters(stack, *arguments):
    """Return the output of ``wakupush dead-letters``."""
    process = wakupush(stack.environment, "dead-letters", *arguments)
    process.check_returncode()
    return process.stdout


def _wait_for_answers(observer, clients, count):
    replies = []

    def arrived():
        replies.extend(filter(None, (open_reply(arrival.message, tuple(clients)) for arrival in observer.messages())))
        return len(replies) >= count

    wait_until(arrived, timeout=120, what=f"{count} answers")


def _everything_in(redis):
    """Return all keys and values, queues with what waits in them among them."""
    content = b""
    for key in redis.scan_iter():
        content += key
        kind = redis.type(key)
        reader = {
            b"string": redis.get,
            b"list": lambda key: redis.lrange(key, 0, -1),
            b"set": redis.smembers,
            b"hash": redis.hgetall,
            b"zset": lambda key: redis.zrange(key, 0, -1),
            b"none": bytes,  # it has expired meanwhile
        }[kind]
        content += repr(reader(key)).encode()
    return content
