"""A node with go-waku's manners: the development node, and the binary that WAKUPUSH_TEST_WAKU names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support import recordings
from support.go_waku import CAPACITY, OTHER_SHARD, SHARD, Serve, development_node
from support.nwaku import AREA, recorded_message
from support.real_go_waku import BINARY, real_go_waku
from wakupush.devnet.node.nwaku import create_app
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings
from wakupush.waku.codec import decode_message


@pytest.fixture(params=["development node", pytest.param("go-waku", marks=pytest.mark.real)])
def client(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Iterator[httpx2.Client]:
    """A node that has joined both shards, with queues of 50 messages."""
    if request.param == "development node":
        yield development_node(serve)
        return
    if not BINARY:
        pytest.skip("WAKUPUSH_TEST_WAKU does not name a go-waku binary")
    store = ("--store", "--store-message-db-url=sqlite3://store.db")
    with (
        real_go_waku(tmp_path, *store, "--rest-admin", f"--rest-relay-cache-capacity={CAPACITY}") as url,
        httpx2.Client(base_url=url, timeout=10, trust_env=False) as client,
    ):
        yield client


@pytest.fixture
def recorded_store(serve: Serve) -> httpx2.Client:
    """A node with the archive of the recordings: 120 messages, and those that answers show besides."""
    node = DevelopmentNode(NodeSettings(shards=(SHARD, OTHER_SHARD), archive_window=None))
    for number in range(120):
        node.publish(SHARD, recorded_message(number))
    answers = [recordings.load(AREA, name).answer for name in sorted(recordings.names(AREA)) if "store-v3" in name]
    for entry in (each for answer in answers if isinstance(answer, dict) for each in answer["messages"]):
        if "message" in entry:
            node.publish(entry["pubsubTopic"], decode_message(entry["message"]))
    return serve(create_app(node))
