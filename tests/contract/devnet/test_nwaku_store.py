"""The Store of the development Waku node with nwaku's manners; its answers: test_nwaku_recorded."""

from __future__ import annotations

import base64
import time

from support.go_waku import SHARD, Serve, relay_path
from support.nwaku import ask_store, body_of, payloads, publish, recorded_message, subscribed
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings


def test_store_orders_equal_timestamps_by_hash(serve: Serve) -> None:
    client = subscribed(serve)
    now = time.time_ns()
    for number in range(10):
        publish(client, b"%d" % number, timestamp=now)
    digests = [entry["messageHash"] for entry in ask_store(client)["messages"]]
    assert digests == sorted(digests)
    first, *_ = ask_store(client, pageSize="4")["messages"]
    assert first["messageHash"] == digests[0]
    assert [entry["messageHash"] for entry in ask_store(client, cursor=digests[3])["messages"]] == digests[4:]


def test_store_omits_ephemeral_and_untimely_messages(serve: Serve) -> None:
    client = subscribed(serve)
    now = time.time_ns()
    for age_s in (-21, -19, 0, 19, 21):
        publish(client, b"%d" % age_s, timestamp=now - age_s * 10**9)
    client.post(relay_path(), json={**body_of(b"ephemeral"), "ephemeral": True})
    stored_payloads = [entry["message"]["payload"] for entry in ask_store(client, includeData="true")["messages"]]
    assert [base64.b64decode(payload) for payload in stored_payloads] == [b"19", b"0", b"-19"]
    assert len(payloads(client)) == 6


def test_archive_is_bounded() -> None:
    node = DevelopmentNode(NodeSettings(shards=(SHARD,), archive_capacity=50, archive_window=None))
    for number in range(60):
        node.publish(SHARD, recorded_message(number))
    assert node.counters["archived"] == 60
    assert len(node.archive._order) == len(node.archive._entries) == 50
    assert node.archive._order[0][0] == recorded_message(10).timestamp
