"""What an operator sees: probes, metrics, exit codes, a graceful end."""

import httpx2
import pytest

from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(settings={"WAKUPUSH_LOG_LEVEL": "INFO"})


def get(url):
    return httpx2.get(url, trust_env=False)


def test_probes_and_metrics_of_ingest(stack):
    assert get(f"{stack.ingest_url}/healthz").status_code == 200
    ready = get(f"{stack.ingest_url}/readyz")
    assert ready.status_code == 200
    assert ready.json() == {**dict.fromkeys(SHARDS, True), "watched query topics": True}
    client = PrivateKey.generate()
    server = stack.key.public_key
    stack.reconcile.stop()  # so that it does not find the message first, and count it
    with WakuNode(stack.node_url) as node:
        node.publish(SHARDS[1], messages.register(client, server, messages.registration(client, server)))

    def counted():
        text = get(f"{stack.ingest_url}/metrics").text
        return 'wakupush_messages_enqueued_total{queue="dispatch"} 1.0' in text

    wait_until(counted, timeout=60, what="the message is counted")
    stack.reconcile.start()
    assert get(f"{stack.ingest_url}/nothing").status_code == 404


def test_ingest_without_a_node_is_not_ready(stack):
    stack.node.kill()
    try:
        wait_until(
            lambda: get(f"{stack.ingest_url}/readyz").status_code == 503,
            timeout=120,
            what="ingest says it is not ready",
        )
        assert get(f"{stack.ingest_url}/healthz").status_code == 200
    finally:
        stack.node.start()
    wait_until(lambda: get(f"{stack.ingest_url}/readyz").status_code == 200, timeout=120, what="ingest is ready again")


def test_probes_and_metrics_of_reconcile(stack):
    assert get(f"{stack.reconcile_url}/healthz").status_code == 200
    name = stack.node_url.removeprefix("http://")
    wait_until(
        lambda: get(f"{stack.reconcile_url}/readyz").json() == {name: True}, timeout=120, what="its Store was walked"
    )
    text = get(f"{stack.reconcile_url}/metrics").text
    for shard in SHARDS:
        for walk in ("registration", "query", "dispatch"):
            labels = f'pubsub_topic="{shard}",store="{name}",walk="{walk}"'
            assert f"wakupush_reconcile_watermark_timestamp_seconds{{{labels}}}" in text
            finished = f'wakupush_reconcile_walks_total{{result="finished",walk="{walk}"}}'
            assert finished in text
            assert f"{finished} 0.0" not in text


def test_all_processes_stop_without_errors(stack):
    stack.stop()
    for process in (stack.ingest, stack.reconcile, *stack.workers.values(), stack.beat, stack.feedback):
        assert process.wait() == 0, process.log_tail()
        assert '"level": "error"' not in process.log.read_text(), process.log_tail()
