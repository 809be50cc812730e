"""Beacons: which are published."""

from types import SimpleNamespace

import pytest

from wakupush.ingest.live import beacons
from wakupush.ingest.live.beacons import SLOW_SECONDS, Beacons
from wakupush.ingest.live.hearing import Hearing
from wakupush.waku.errors import NodeUnreachable

SHARDS = ("/waku/2/rs/16/32", "/waku/2/rs/16/64")


@pytest.mark.parametrize(("seconds", "tries"), [(2 * SLOW_SECONDS, 1), (0.0, 2)], ids=["hangs", "refuses at once"])
def test_a_node_that_hangs_gets_one_beacon(seconds, tries, monkeypatch):
    """More would wait for its time-out as well, before the other nodes get theirs."""
    published, clock = [], [0.0]
    monkeypatch.setattr(beacons, "time", SimpleNamespace(monotonic=lambda: clock[0], time_ns=lambda: 1))

    class Node:
        def __init__(self, name, *, fails):
            self.name, self.fails = name, fails

        def publish(self, shard, _):
            published.append((self.name, shard))
            if self.fails:
                clock[0] += seconds
                raise NodeUnreachable("no answer")

    nodes = {"a": Node("a", fails=True), "b": Node("b", fails=False)}
    Beacons(nodes, SHARDS, Hearing(tuple(nodes), SHARDS), None, None).publish()
    assert published == [*(("a", shard) for shard in SHARDS[:tries]), *(("b", shard) for shard in SHARDS)]
