"""The server's only node is down, and what was sent meanwhile is in somebody else's Store alone."""

import json

import pytest

from e2e.requests_load import doctor, metric
from support.devnet import serving
from wakupush.devnet import messages
from wakupush.devnet.processes import free_port, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode


def address(port):
    return f"/ip4/127.0.0.1/tcp/{port}/p2p/16Uiu2HAmPeerPeerPeerPeerPeerPeerPeerPeerPeerPeerPee"


@pytest.fixture(scope="module")
def peer(tmp_path_factory, forkserver):
    options = (f"--shard={SHARDS[0]}", f"--shard={SHARDS[1]}")
    with serving("waku", tmp_path_factory.mktemp("peer") / "log", *options, forkserver=forkserver) as (url, _):
        yield url


def test_registration_of_an_outage_comes_from_a_store_peer(peer, start_stack):
    port, dead_port = peer.rpartition(":")[2], free_port()
    settings = {
        "WAKUPUSH_RECONCILE__STORE_PEERS": json.dumps([address(port), address(dead_port)]),
        "WAKUPUSH_RECONCILE__STORE_PEER_PAUSE": "0.1",
        "WAKUPUSH_RECONCILE__OVERLAP": "5",
    }
    stack = start_stack(settings=settings)
    client, server = PrivateKey.generate(), stack.key.public_key
    stack.node.stop()
    message = messages.register(client, server, messages.registration(client, server))
    with WakuNode(peer) as node:
        node.publish(SHARDS[0], message)
    stack.node.start()
    with stack.connect() as connection:
        digest = message_hash(SHARDS[0], message)
        wait_until(
            lambda: stack.is_handled(connection, digest, message.content_topic), timeout=120, what="it is registered"
        )
        query = "SELECT kind FROM delivery_history WHERE trace_id = %s"
        kinds = {
            kind for (kind,) in connection.execute(query, [Identity.of(stack.key).event_trace_id(digest[:8].hex())])
        }
    assert "registered" in kinds
    watermark = "wakupush_reconcile_watermark_timestamp_seconds"
    assert metric(stack.reconcile_url, watermark, store=f"127.0.0.1:{port}", walk="registration")
    findings = doctor(stack)
    assert f"Store peer 127.0.0.1:{port} answers through" in findings
    assert f"Store peer 127.0.0.1:{dead_port} does not answer through" in findings
    assert "PEER_DIAL_FAILURE" in findings
