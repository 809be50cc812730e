"""What ingest tells the processes that publish about the relay peers of the nodes."""

import math
from threading import Event

from support.answering import serving
from wakupush.ingest.live.peers import RelayPeers
from wakupush.redis import left_out
from wakupush.runtime import metrics
from wakupush.waku.node import WakuNode

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/0"
#: As nwaku answers: one peer on a shard, none on the other, and none at all.
PEERS = (200, b'[{"shard":32,"peers":[{}]},{"shard":0,"peers":[]}]')
HEALTHY = (200, b'{"nodeHealth":"READY","connectionStatus":"PartiallyConnected"}')
ALONE = (200, b'{"nodeHealth":"READY","connectionStatus":"Disconnected"}')
NO_ADMIN = (404, b"")


def look(redis, peers, health):
    """Return on which shards a node that answers so has no peers, and how many peers the metric shows."""
    with serving() as server:
        server.answers = [lambda handler: health if handler.path == "/health" else peers]
        looking = RelayPeers("node", WakuNode(server.url, timeout=2), (SHARD, OTHER), redis, Event())
        is_lonely = looking.look()
    lonely = {shard for _, shard in left_out.read_without_peers(redis, ["node"])}
    assert is_lonely == bool(lonely)
    return lonely, [metrics.RELAY_PEERS.labels("node", shard)._value.get() for shard in (SHARD, OTHER)]


def test_shards_without_peers_are_told(redis):
    assert look(redis, PEERS, HEALTHY) == ({OTHER}, [1, 0])


def test_a_node_that_is_disconnected_has_no_peer(redis):
    lonely, counts = look(redis, NO_ADMIN, ALONE)
    assert lonely == {SHARD, OTHER}
    assert all(map(math.isnan, counts))


def test_what_a_node_does_not_say_counts_as_peers(redis):
    left_out.write_without_peers(redis, "node", [SHARD])
    assert look(redis, NO_ADMIN, HEALTHY)[0] == set()


def test_a_node_that_does_not_answer_is_as_it_was(redis):
    left_out.write_without_peers(redis, "node", [SHARD])
    with serving() as server:
        server.answers = [(503, b"")]
        node = WakuNode(server.url, timeout=2)
        RelayPeers("node", node, (SHARD, OTHER), redis, Event()).look()
    assert left_out.read_without_peers(redis, ["node"]) == {("node", SHARD)}
