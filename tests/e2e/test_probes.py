"""Probes prove that a worker takes tasks and that beat turns; a broker that is down restarts no worker."""

import os
import signal
import time
from pathlib import Path

import httpx2
import psutil
import pytest

from wakupush.devnet import messages
from wakupush.devnet.processes import free_port, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.celery_app import celery_app
from wakupush.redis.sending import send_entries
from wakupush.runtime.settings import RedisSettings, Settings
from wakupush.server.beat.jobs import JOBS


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(worker_module="stuck_worker", settings={"PYTHONPATH": str(Path(__file__).parent)})


class Probed:
    """A further worker with its probes."""

    def __init__(self, stack, pool):
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self.process = stack.worker(pool, settings={"WAKUPUSH_HTTP_PORT": str(port)})

    @property
    def main(self):
        """The process that the watching shell became."""
        return psutil.Process(self.process.pid)

    def answers(self, path):
        """Return the status and what was checked, or None if nobody answers."""
        try:
            answer = httpx2.get(self.url + path, timeout=5, trust_env=False)
        except httpx2.TransportError:
            return None
        return answer.status_code, answer.json()

    def healthy(self):
        return (self.answers("/healthz") or (None,))[0] == 200

    def ready(self):
        return (self.answers("/readyz") or (None,))[0] == 200


@pytest.fixture
def probed(stack):
    probed = Probed(stack, "dispatch")
    with probed.process:
        wait_until(probed.ready, timeout=120, what="the worker takes tasks")
        yield probed
        probed.process.kill()


def entry():
    message = messages.query(PrivateKey.generate(), b"")
    return Entry(SHARDS[0], message_hash(SHARDS[0], message), time.time(), message)


def stays(predicate, *, seconds):
    """Say whether something is so, and goes on being so for a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not predicate():
            return False
        time.sleep(0.2)
    return True


def test_an_idle_worker_is_healthy(probed):
    assert probed.answers("/healthz") == (200, {"event loop": True, "consumer": True})
    assert probed.answers("/readyz") == (200, {"connected": True, "event loop": True, "consumer": True})
    # Longer than each of the limits of this test: what is noted is renewed.
    assert stays(probed.healthy, seconds=10)


def test_a_worker_whose_loop_is_blocked_is_not_healthy(probed):
    os.kill(probed.process.pid, signal.SIGUSR2)
    wait_until(lambda: not probed.healthy(), timeout=120, what="the probe fails")
    assert probed.answers("/healthz") == (503, {"event loop": False, "consumer": True})


def test_deaf_worker_is_unhealthy(probed):
    os.kill(probed.process.pid, signal.SIGWINCH)
    wait_until(lambda: not probed.healthy(), timeout=120, what="the probe fails")
    assert probed.answers("/healthz") == (503, {"event loop": True, "consumer": False})


def test_a_busy_worker_with_one_process_is_healthy(stack, probed):
    stack.workers["dispatch"].stop()
    app = celery_app(Settings(redis=RedisSettings(url=stack.redis_url)))
    [child] = [each for each in probed.main.children() if "python" in each.name()]
    try:
        child.suspend()
        # One that it takes, and one that waits: the task lasts longer than the loop may stand still.
        for _ in range(2):
            send_entries(app, DISPATCH, [entry()])
        assert stays(probed.healthy, seconds=6)
    finally:
        child.resume()
        app.close()
        stack.workers["dispatch"].start()


def test_a_worker_waits_for_redis_in_good_health(stack, probed):
    stack.redis.kill()
    try:
        wait_until(lambda: not probed.ready(), timeout=120, what="the worker notices")
        assert probed.answers("/readyz")[1]["connected"] is False
        assert stays(probed.healthy, seconds=12)
    finally:
        stack.redis.start()
    wait_until(probed.ready, timeout=300, what="the worker takes tasks again")
    assert stays(probed.healthy, seconds=10)


def test_beat_is_healthy_while_its_jobs_turn(stack):
    port = free_port()
    beat = stack._wakupush("beat 2", "beat", settings={"WAKUPUSH_HTTP_PORT": str(port)})
    probed = Probed(stack, "dispatch")
    probed.url, probed.process = f"http://127.0.0.1:{port}", beat
    names = {job.__name__ for job in JOBS}
    with beat:
        wait_until(probed.ready, timeout=120, what="every job has worked")
        assert probed.answers("/healthz") == (200, dict.fromkeys(names, True))
        stack.postgres.kill()
        try:
            wait_until(lambda: not probed.ready(), timeout=300, what="beat tells that its jobs fail")
            assert probed.healthy()
            # Each job fails at its own time.
            metrics = f"{probed.url}/metrics"
            none = 'wakupush_jobs_failed_total{work="claim_due"} 0.0'
            wait_until(lambda: none not in httpx2.get(metrics, trust_env=False).text, timeout=300, what="it is counted")
        finally:
            stack.postgres.start()
        wait_until(probed.ready, timeout=300, what="every job works again")


def get(url):
    return httpx2.get(url, trust_env=False)
