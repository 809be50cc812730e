"""Workers that are busy when they are scaled down lose nothing: every push goes out once, no lease is lost."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx2
import pytest
from redis import Redis

from e2e.users import User
from wakupush.devnet import messages
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import Process, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import backlog
from wakupush.waku.node import WakuNode

REQUESTS = 160
#: Requests in a task, and posts of one platform that a worker keeps open.
BATCH, SLOTS = 4, 8


@pytest.fixture(scope="module")
def stack(start_stack):
    # Small batches, so that there are many tasks to be stopped in.
    budget = {"WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE": "1000000"}  # all is for one device
    return start_stack(settings={"WAKUPUSH_INGEST__BATCH_SIZE": str(BATCH)} | budget)


@pytest.fixture(scope="module")
def device(stack):
    """Register a device; return its key's hash and what it registered."""
    with WakuNode(stack.node_url) as node:
        user = User(stack, node)
        with closing(user.observer):
            user.register()
            user.wait(replies=1)
    # Workers of the test take their place; and reconcile would enqueue what is to wait.
    stack.workers["dispatch"].stop()
    stack.reconcile.stop()
    return user.key.public_key.key_hash, user.registered


@pytest.fixture
def backlog_in_the_node(stack, device):
    """Slow gorush down, and let many requests for the device wait in the node."""
    stack.ingest.stop()
    with WakuNode(stack.node_url) as node, stack.connect() as connection:
        connection.execute("TRUNCATE deliveries, delivery_events")
        for _ in range(REQUESTS):
            request = messages.request(PrivateKey.generate(), stack.key.public_key, [messages.notification(*device)])
            node.publish(SHARDS[0], request)
    faults = f"{stack.gorush_url}/dev/faults"
    httpx2.post(faults, json={"path": "/api/push", "kind": "delay", "seconds": 0.5})
    yield
    httpx2.delete(faults)


@pytest.mark.usefixtures("backlog_in_the_node")
@pytest.mark.parametrize(
    ("answer_within", "workers", "stopped"),
    [
        # Tasks wait for their posts: workers are stopped in their tasks.
        ("30", 3, 2),
        # Requests are older than answers may be: posts go on when their tasks are done, as many as there are slots.
        ("0.001", 2, 1),
    ],
    ids=["in a task", "in posts that outlive their tasks"],
)
def test_busy_workers_are_stopped(stack, answer_within, workers, stopped):
    pools = [
        stack.worker("dispatch", settings={"WAKUPUSH_WORKER__ANSWER_WITHIN": answer_within}) for _ in range(workers)
    ]
    pushed = Counter()
    with (
        ExitStack() as running,
        closing(Observer(stack.node_url, stack.gorush_url)) as observer,
        Redis.from_url(stack.redis_url) as redis,
        stack.connect() as connection,
    ):

        def in_flight():
            return backlog.look(redis)["dispatch"].tasks_in_flight

        def posting():
            return connection.execute("SELECT count(*) FROM deliveries WHERE state = 'posting'").fetchone()[0]

        def all_are_busy():
            """Say whether there is more under way than all workers but one can have."""
            if answer_within == "30":
                return in_flight() == workers
            return posting() > (workers - 1) * SLOTS * BATCH

        def all_pushed():
            pushed.update(push.notification["notif_id"].partition("-")[0] for push in observer.pushes())
            return len(pushed) >= REQUESTS

        for pool in pools:
            running.enter_context(pool)
        stack.ingest.start()
        wait_until(all_are_busy, timeout=300, what="all are busy", interval=0.005)
        with ThreadPoolExecutor() as threads:
            list(threads.map(Process.stop, pools[:stopped]))
        for pool in pools[:stopped]:
            assert pool.wait() == 0, pool.log_tail()
        wait_until(all_pushed, timeout=300, what="every push has arrived")
        wait_until(lambda: in_flight() == posting() == 0, timeout=120, what="every outcome is stored")
        all_pushed()
        assert (len(pushed), set(pushed.values())) == (REQUESTS, {1})
        rows = connection.execute("SELECT state, attempt, count(*) FROM deliveries GROUP BY 1, 2").fetchall()
        assert rows == [("delivered", 1, REQUESTS)]
        kinds = dict(connection.execute("SELECT kind, count(*) FROM delivery_history GROUP BY kind").fetchall())
        assert kinds["admitted"] == kinds["attempt"] == kinds["delivered"] == REQUESTS
        assert not {"unknown", "failed", "expired", "dead_letter"} & set(kinds)
    assert '"level": "error"' not in pools[0].log.read_text(), pools[0].log_tail()
