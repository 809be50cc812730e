"""A rolling upgrade in the middle: workers and schedules of the last release and ours on one Redis and one Postgres."""

import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import psutil
import pytest

from deploy.release.past import NEWER_SETTINGS, ROOT, last_release
from support.stored import contents
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import Process, wait_until
from wakupush.devnet.stack import SHARDS, Stack
from wakupush.model.queues import QUEUES
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistrationResponse,
    PushNotificationResponse,
)
from wakupush.protocol import payload, segments
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

OLD = last_release()
CLIENTS = 60
ATTEMPTS = 6
#: Clients whose device is out of reach in passing: their deliveries are tried until no attempt is left.
UNREACHABLE = 8
#: Seconds; ten times what a quiet machine takes.
PATIENCE = 300

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def code_of_before(tmp_path_factory):
    process = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=False)
    if process.returncode:
        pytest.skip(f"{OLD} is not in this clone: fetch its history")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=BytesIO(process.stdout)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # of Python 3.11.4
        archive.extractall(folder)  # noqa: S202 - it is our own
    # Its own modules come first there.
    command = [sys.executable, "-c", "import wakupush; print(wakupush.__file__)"]
    whose = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert whose.strip() == str(folder / "wakupush" / "__init__.py")
    return folder


@dataclass(kw_only=True, eq=False)
class UpgradedStack(Stack):
    """A stack on the schema of an upgrade that is under way: what old code needs is still there."""

    old_code: Path

    def migrate(self):
        process = old_process(self, self.old_code, "migrate", "migrate")
        process.start()
        assert process.wait(timeout=60) == 0, process.log_tail()
        super().migrate("--pre")


def old_process(stack, folder, name, *arguments):
    command = [sys.executable, "-m", "wakupush", *arguments]  # the working directory comes first
    environment = {name: value for name, value in stack.environment.items() if name not in NEWER_SETTINGS}
    log = stack.directory / f"old-{name}.log"
    return Process(f"old {name}", command, log=log, env=environment, cwd=folder, start_timeout=120, grace=100)


@pytest.fixture(scope="module")
def stack(start_stack, code_of_before):
    waits = {"FIRST_WAIT": "0.2", "SLOW_FIRST_WAIT": "0.2", "MAX_WAIT": "0.5", "MAX_ATTEMPTS": str(ATTEMPTS)}
    breaker = {"WAKUPUSH_BREAKER__FAULTS": "100000"}
    settings = {f"WAKUPUSH_DELIVERY__{name}": value for name, value in waits.items()} | breaker
    return start_stack(kind=UpgradedStack, old_code=code_of_before, settings=settings)


@pytest.fixture(scope="module")
def old_processes(stack, code_of_before):
    """Run the workers and the schedule of the old code beside the stack's; yield the workers by queue."""

    workers = {queue: old_process(stack, code_of_before, queue, "worker", queue) for queue in QUEUES}
    beat = old_process(stack, code_of_before, "beat", "beat")
    for each in (*workers.values(), beat):
        each.start()
    for each in workers.values():
        wait_until(lambda each=each: each.has_logged(" ready."), timeout=PATIENCE, what=f"{each.name} takes tasks")
    yield workers
    for each in (beat, *workers.values()):
        each.stop()


def in_segments(message, key, signer):
    """Return a registration in several envelopes, which either version can put together out of what the other kept."""
    data = payload.open_asymmetric(message.payload, key).data
    return [
        replace(message, payload=payload.seal_asymmetric(part, key.public_key, signer))
        for part in segments.split(data, 150)
    ]


def pids(worker):
    return {child.pid for child in psutil.Process(worker.pid).children(recursive=True)}


def pid_of(worker):
    """Return the process that an event names."""
    return int(worker.rpartition(":")[2])


def assert_success(reply):
    if reply.type_name.endswith("REGISTRATION_RESPONSE"):
        assert PushNotificationRegistrationResponse.FromString(reply.inner).success
    elif reply.type_name.endswith("QUERY_RESPONSE"):
        assert PushNotificationQueryResponse.FromString(reply.inner).info
    else:
        assert all(report.success for report in PushNotificationResponse.FromString(reply.inner).reports)


def test_old_and_new_workers_share_the_work(stack, old_processes):
    server = stack.key.public_key
    clients = [PrivateKey.generate() for _ in range(CLIENTS)]
    observer = Observer(stack.node_url, stack.gorush_url)
    replies = {client.public_key: Counter() for client in clients}

    def answered(kind, each=1):
        for arrival in observer.messages():
            reply = open_reply(arrival.message, tuple(clients))
            if reply is None:
                continue
            replies[reply.recipient][reply.type_name] += 1
            assert_success(reply)
        return all(sum(n for name, n in counts.items() if name.endswith(kind)) >= each for counts in replies.values())

    registered = {}
    with WakuNode(stack.node_url) as node:
        for position, client in enumerate(clients):
            token = "unavailable" if position < UNREACHABLE else f"token-{position}"
            registered[client] = messages.registration(client, server, device_token=token)
            registration = messages.register(client, server, registered[client])
            for message in in_segments(registration, stack.key, client) if position % 3 == 0 else [registration]:
                node.publish(SHARDS[0], message)
        wait_until(lambda: answered("REGISTRATION_RESPONSE"), timeout=PATIENCE, what="all are registered")
        for client in clients:
            node.publish(SHARDS[0], messages.query(client, client.public_key.key_hash))
        wait_until(lambda: answered("QUERY_RESPONSE"), timeout=PATIENCE, what="all queries are answered")
        for client in clients:
            items = [messages.notification(client.public_key.key_hash, registered[client])]
            node.publish(SHARDS[0], messages.request(client, server, items))
        wait_until(lambda: answered("NOTIFICATION_RESPONSE"), timeout=PATIENCE, what="all requests are answered")

    with stack.connect() as connection:
        states = "SELECT state, count(*) FROM deliveries GROUP BY state"
        expected = {"delivered": CLIENTS - UNREACHABLE, "dead_letter": UNREACHABLE}
        wait_until(lambda: dict(connection.execute(states)) == expected, timeout=PATIENCE, what="all deliveries end")
        # Nothing failed by itself, nothing was pushed twice, and no attempt was lost or made twice.
        assert connection.execute("SELECT count(*) FROM quarantine").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM message_attempts").fetchone() == (0,)
        attempts = connection.execute(
            "SELECT failure, attempt, count(*) FROM delivery_history WHERE kind = 'failed' GROUP BY failure, attempt"
        ).fetchall()
        assert {number: count for _, number, count in attempts} == dict.fromkeys(range(1, ATTEMPTS + 1), UNREACHABLE)
        worked = {
            (queue, pid_of(worker))
            for queue, worker in connection.execute("SELECT DISTINCT queue, worker FROM delivery_history")
        }
        retried = {
            pid_of(worker)
            for (worker,) in connection.execute(
                "SELECT DISTINCT worker FROM delivery_history WHERE kind = 'attempt' AND attempt > 1"
            )
        }
    pushed = Counter(push.notification["tokens"][0] for push in observer.pushes())
    assert {token: count for token, count in pushed.items() if token != "unavailable" and count > 1} == {}
    for queue in QUEUES:  # each version had its share
        assert {(queue, pid) for pid in pids(old_processes[queue])} & worked, f"the old {queue} worker did nothing"
        assert {(queue, pid) for pid in pids(stack.workers[queue])} & worked, f"the new {queue} worker did nothing"
    assert pids(old_processes["dispatch"]) & retried
    assert pids(stack.workers["dispatch"]) & retried
    observer.close()

    with stack.connect() as connection:
        devices = contents(connection, Identity.of(stack.key)).values()
        assert {device.access_token for _, device, *_ in devices} == {each.access_token for each in registered.values()}
