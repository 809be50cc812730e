"""A pool of several processes counts as one, whichever of them did the work, and whichever of them has died since."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from wakupush.devnet import messages
from wakupush.devnet.processes import free_port, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode

PROCESSES = 3


@pytest.fixture
def pool(stack):
    stack.workers["registration"].stop()
    port = str(free_port())
    worker = stack.worker("registration", concurrency=PROCESSES, settings={"WAKUPUSH_HTTP_PORT": port})
    with worker:
        yield Pool(stack, worker, f"http://127.0.0.1:{port}/metrics")
    stack.workers["registration"].start()


class Pool:
    def __init__(self, stack, worker, url):
        self.stack, self.worker, self.url = stack, worker, url
        self.registration_count = 0

    def register(self, count):
        """Send registrations, and wait until as many rows as were ever sent are there."""
        server = self.stack.key.public_key
        with WakuNode(self.stack.node_url) as node:
            for _ in range(count):
                client = PrivateKey.generate()
                node.publish(SHARDS[0], messages.register(client, server, messages.registration(client, server)))
        self.registration_count += count
        wait_until(
            lambda: self.counted() >= self.registration_count,
            timeout=300,
            what=f"{self.registration_count} registrations are counted",
        )

    def text(self):
        return httpx2.get(self.url, trust_env=False).text

    def counted(self):
        return self.sum(r'wakupush_events_total\{.*kind="registered".*\}')

    def sum(self, series):
        return sum(float(value) for value in re.findall(rf"^{series} (\S+)$", self.text(), re.MULTILINE))

    def children(self):
        children = []
        for each in psutil.Process(self.worker.pid).children():
            with suppress(psutil.NoSuchProcess):  # it was killed, and is collected meanwhile
                children += [each] if "python" in each.name() else []
        return children


def test_metrics_sum_all_processes_and_dead_ones(pool):
    with pool.stack.connect() as connection:
        [start_time, before_us] = connection.execute("SELECT now(), (SELECT count(*) FROM registrations)").fetchone()
        pool.register(30)
        workers = connection.execute(
            "SELECT DISTINCT worker FROM delivery_history WHERE kind = 'registered' AND time >= %s", [start_time]
        ).fetchall()
        assert len(workers) > 1  # one process alone would be counted right by accident
        before = pool.children()
        assert len(before) == PROCESSES
        gauges = [Path(file.path) for child in before for file in child.open_files() if "gauge_live" in file.path]
        assert gauges
        for child in before:
            os.kill(child.pid, signal.SIGKILL)
        wait_until(
            lambda: len(children := pool.children()) == PROCESSES and not set(children) & set(before),
            timeout=120,
            what="the pool has new processes",
        )
        assert pool.counted() == 30  # a counter that fell would look like a restart
        assert not any(file.exists() for file in gauges), "what they had in progress would be shown for ever"
        pool.register(30)
        [row_count] = connection.execute("SELECT count(*) FROM registrations").fetchone()
    assert pool.counted() == row_count - before_us == 60
    assert pool.sum(r'wakupush_queue_wait_seconds_count\{queue="registration"\}') == 60
    assert pool.sum(r'wakupush_batch_size_sum\{queue="registration"\}') == 60


def test_no_series_names_a_process(pool):
    pool.register(3)
    assert "pid=" not in pool.text()
    assert pool.sum(r'wakupush_pool_processes\{queue="registration"\}') == PROCESSES
