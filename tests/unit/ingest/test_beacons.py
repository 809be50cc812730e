"""Beacons: which are published."""

import pytest

from wakupush.ingest.live.beacons import Beacons
from wakupush.ingest.live.hearing import Hearing
from wakupush.waku.errors import NodeRefused, NodeUnreachable, NotPublished

SHARDS = ("/waku/2/rs/16/32", "/waku/2/rs/16/64")


@pytest.mark.parametrize(
    ("error", "tries"),
    [(NodeUnreachable("no answer"), 1), (NotPublished("no peers"), 2), (NodeRefused(400, "no"), 2)],
    ids=["unreachable", "not published", "refused"],
)
def test_a_node_that_does_not_answer_gets_one_beacon(error, tries):
    """More would wait for its time-out as well, before the other nodes get theirs."""
    published = []

    class Node:
        def __init__(self, name, failure):
            self.name, self.failure = name, failure

        def publish(self, shard, _):
            published.append((self.name, shard))
            if self.failure is not None:
                raise self.failure

    nodes = {"a": Node("a", error), "b": Node("b", None)}
    Beacons(nodes, SHARDS, Hearing(tuple(nodes), SHARDS), None, None).publish()
    assert published == [*(("a", shard) for shard in SHARDS[:tries]), *(("b", shard) for shard in SHARDS)]
