"""What several nodes hear, compared."""

import itertools
import os

import pytest

from wakupush.ingest.live import hearing as module
from wakupush.ingest.live.hearing import COMPARED_PER_SECOND, SETTLED_SECONDS, WINDOW_SECONDS, Hearing
from wakupush.redis.left_out import NodeFault

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
NODES = ("a", "b", "c")


class Network:
    """Nodes, of which some are deaf or mute, and a clock."""

    def __init__(self, *nodes, shards=(SHARD,)):
        self.clock = 1000.0
        self.nodes, self.shards = nodes, shards
        self.hearing = Hearing(nodes, shards, now=lambda: self.clock)
        #: Nodes and shards on which these have no peers.
        self.lonely = set()
        self.deaf, self.mute, self.down = set(), set(), set()

    def message(self, shard=SHARD, to=None):
        digest = os.urandom(32)
        for node in self.nodes:
            is_cut = node in self.deaf | self.down or (node, shard) in self.lonely
            if not is_cut and (to is None or node in to):
                self.hearing.note_heard(node, shard, [digest])

    def beacons(self):
        for source, shard in itertools.product(self.nodes, self.shards):
            if source in self.down:
                continue
            beacon = os.urandom(32)
            self.hearing.note_beacon(source, shard, beacon)
            for node in self.nodes:
                is_cut = not self.lonely.isdisjoint({(source, shard), (node, shard)})
                arrives = node == source or not (source in self.mute or node in self.deaf or is_cut)
                if arrives and node not in self.down:
                    self.hearing.note_beacons_heard(node, [beacon])

    def run(self, seconds, *, messages=1):
        """Let time pass, with so many messages a second for the server; return the faults of nodes."""
        self.pass_time(seconds, messages=messages)
        return self.faults()

    def pass_time(self, seconds, *, messages=1):
        for second in range(seconds):
            for node, shard in itertools.product(self.nodes, self.shards):
                if node in self.down:
                    self.hearing.note_failure(node, shard)
                else:
                    self.hearing.note_read(node, shard)
            for _, shard in itertools.product(range(messages), self.shards):
                self.message(shard)
            if second % 10 == 0:
                self.beacons()
            self.clock += 1.0

    def faults(self):
        """Return the faults of nodes, which have to be the same on all shards."""
        faults = self.hearing.faults()
        by_node = {node: {faults.get((node, shard)) for shard in self.shards} for node, _ in faults}
        return {node: fault for node, (fault,) in by_node.items()}


@pytest.mark.parametrize("nodes", [("a", "b"), NODES])
def test_working_nodes_have_no_fault(nodes):
    assert Network(*nodes).run(120) == {}


@pytest.mark.parametrize("nodes", [("a", "b"), NODES])
@pytest.mark.parametrize(("what", "fault"), [("deaf", NodeFault.DEAF), ("mute", NodeFault.MUTE)])
def test_a_node_is_found_out_and_taken_in_again(nodes, what, fault):
    network = Network(*nodes)
    network.run(60)
    getattr(network, what).add("b")
    assert network.run(90) == {"b": fault}
    getattr(network, what).clear()
    assert network.run(90) == {}


def test_a_deaf_node_is_found_out_within_15_seconds():
    network = Network("a", "b")
    network.deaf.add("b")
    assert network.run(15, messages=50) == {"b": NodeFault.DEAF}


def test_a_node_that_is_down_is_neither_deaf_nor_mute():
    network = Network("a", "b")
    network.run(30)
    network.down.add("b")
    assert network.run(30) == {"b": NodeFault.UNREACHABLE}
    network.down.clear()
    assert network.run(2) == {}  # what it missed meanwhile is not held against it
    assert network.run(60) == {}


def test_silence_reveals_no_fault():
    """That a beacon of a is not heard by b may be either's fault."""
    network = Network("a", "b")
    network.deaf.add("b")
    assert network.run(120, messages=0) == {}


def test_three_nodes_need_only_beacons():
    network = Network(*NODES)
    network.mute.add("b")
    assert network.run(120, messages=0) == {"b": NodeFault.MUTE}


@pytest.mark.parametrize(("nodes", "fault"), [(("a", "b"), None), (NODES, NodeFault.MUTE)])
def test_lonely_shard_leaves_the_others_in_use(nodes, fault):
    """Without messages for us on the shard, of two nodes either may be the one without peers."""
    network = Network(*nodes, shards=(SHARD, OTHER))
    network.lonely.add(("b", OTHER))
    for _ in range(90):
        network.message(SHARD)
        network.pass_time(1, messages=0)
    assert network.hearing.faults() == ({("b", OTHER): fault} if fault else {})


def test_a_node_may_be_deaf_on_one_shard_alone():
    network = Network("a", "b", shards=(SHARD, OTHER))
    network.lonely.add(("b", OTHER))
    network.pass_time(60)
    assert network.hearing.faults() == {("b", OTHER): NodeFault.DEAF}


def test_few_messages_prove_nothing():
    network = Network("a", "b")
    network.run(30, messages=0)
    for _ in range(module.LEAST_HEARD - 1):
        network.message(to={"a"})
    assert network.run(int(SETTLED_SECONDS) + 2, messages=0) == {}
    network.message(to={"a"})
    assert network.run(int(SETTLED_SECONDS) + 2, messages=0) == {"b": NodeFault.DEAF}


def test_two_processes_on_one_cache_find_nobody_out():
    """While an upgrade is under way each reads half of it."""
    network = Network("a", "b")
    for number in range(90):
        network.message(to=[{"a", "b"}, {"a"}, {"b"}][number % 3])
        network.run(1, messages=0)
    assert network.faults() == {}


def test_memory_of_hearing_is_bounded():
    network = Network("a", "b")
    network.run(2 * int(WINDOW_SECONDS), messages=10 * COMPARED_PER_SECOND)
    assert len(network.hearing._sounds) <= (COMPARED_PER_SECOND + 1) * (WINDOW_SECONDS + 1)
    network.hearing.note_beacons_heard("a", [os.urandom(32) for _ in range(1000)])
    assert len(network.hearing._sounds) <= (COMPARED_PER_SECOND + 1) * (WINDOW_SECONDS + 1)


def test_a_beacon_that_was_not_taken_says_nothing():
    network = Network("a", "b")
    for _ in range(60):
        beacon = os.urandom(32)
        network.hearing.note_beacon("a", SHARD, beacon)
        network.hearing.forget_beacon(beacon)
        network.run(1)
    assert network.hearing.faults() == {}
