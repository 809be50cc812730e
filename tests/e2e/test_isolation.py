"""One bad message in a batch: its neighbours' effects and answers happen, it ends in quarantine."""

import time
from pathlib import Path

import psutil
import pytest

from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.pb.push_notification_pb2 import PushNotificationRegistrationResponse
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(worker_module="poisoned_worker", settings={"PYTHONPATH": str(Path(__file__).parent)})


@pytest.mark.parametrize(("poison", "reason"), [("poison-raise", "RuntimeError"), ("poison-kill", "process died")])
def test_a_poisonous_message_among_others(stack, poison, reason):
    clients = [PrivateKey.generate() for _ in range(11)]
    tokens = [poison if position == 5 else f"token-{position}" for position in range(len(clients))]
    server = stack.key.public_key
    published_messages = [
        messages.register(client, server, messages.registration(client, server, device_token=token))
        for client, token in zip(clients, tokens, strict=True)
    ]
    hashes = [message_hash(SHARDS[0], message) for message in published_messages]
    observer = Observer(stack.node_url, stack.gorush_url)
    stack.reconcile.stop()
    stack.ingest.stop()  # so that one poll brings them all, in one batch
    with WakuNode(stack.node_url) as node:
        for message in published_messages:
            node.publish(SHARDS[0], message)
    stack.ingest.start()
    stack.reconcile.start()  # it leaves what is in a worker's hands, or in quarantine, alone

    with stack.connect() as connection:
        answered = set()

        def everybody_is_done() -> bool:
            for arrival in observer.messages():
                reply = open_reply(arrival.message, tuple(clients))
                if reply and PushNotificationRegistrationResponse.FromString(reply.inner).success:
                    answered.add(reply.recipient)
            ledger_count = connection.execute(
                "SELECT count(*) FROM ledger WHERE message_hash = ANY (%s)", [hashes]
            ).fetchone()
            return ledger_count == (len(published_messages),) and len(answered) == len(clients) - 1

        wait_until(everybody_is_done, timeout=300, what="all are answered but one")
        assert {client.public_key for client in clients} - answered == {clients[5].public_key}
        rows = connection.execute(
            "SELECT key_hash FROM registrations WHERE key_hash = ANY (%s)",
            [[client.public_key.key_hash for client in clients]],
        ).fetchall()
        assert len(rows) == len(clients) - 1
        quarantined = connection.execute(
            "SELECT reason, attempts, queue, payload FROM quarantine WHERE message_hash = %s", [hashes[5]]
        ).fetchall()
        assert quarantined == [(reason, 3, "registration", published_messages[5].payload)]
        assert connection.execute("SELECT count(*) FROM message_attempts").fetchone() == (0,)
        # An answer is seen at the node before its row goes.
        wait_until(
            lambda: connection.execute("SELECT count(*) FROM answers").fetchone() == (0,),
            timeout=60,
            what="no answer is due",
        )
    observer.close()


def test_a_child_killed_at_its_start_is_replaced(stack):
    """Celery by itself ends the whole worker when it finds a child missing at its first look."""
    killed = stack.directory / "killed"
    with stack.worker("query", settings={"POISON_START": str(killed)}) as worker:
        assert killed.exists()
        time.sleep(1)  # Celery looks once, right after it says that it is ready
        assert worker.running
        # The first one is the shell that watches it.
        wait_until(lambda: any(psutil.Process(worker.pid).children()), timeout=30, what="the child is replaced")
