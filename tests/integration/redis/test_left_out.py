"""The nodes that senders leave out, in a real Redis."""

from wakupush.redis import left_out
from wakupush.redis.left_out import ALL_SHARDS, ExcludedNodes, NodeFault

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/0"


def test_a_node_is_left_out_on_single_shards_or_on_all(redis):
    faults = {
        ("a:1", SHARD): NodeFault.MUTE,
        ("a:1", OTHER): NodeFault.DEAF,
        ("b:1/path", OTHER): NodeFault.DEAF,
    }
    left_out.write(redis, faults, (SHARD, OTHER))
    stored_faults = left_out.read(redis)
    assert stored_faults.keys() == {("a:1", ALL_SHARDS), ("b:1/path", OTHER)}
    assert stored_faults["b:1/path", OTHER] is NodeFault.DEAF
    excluded = ExcludedNodes(redis, ["a:1"])
    assert [excluded.names(shard) for shard in (SHARD, OTHER)] == [{"a:1"}, {"a:1", "b:1/path"}]
    left_out.write(redis, {}, (SHARD, OTHER))
    assert left_out.read(redis) == {}


def test_a_node_without_peers_is_left_out_there(redis):
    left_out.write_without_peers(redis, "b:1", [SHARD, OTHER])
    left_out.write_without_peers(redis, "a:1", [OTHER])
    assert 0 < redis.ttl(left_out.WITHOUT_PEERS + "a:1") <= left_out.HOLDS_SECONDS
    left_out.write_without_peers(redis, "b:1", [])
    excluded = ExcludedNodes(redis, ["a:1", "b:1", "c:1"])
    assert [excluded.without_peers(shard) for shard in (SHARD, OTHER)] == [set(), {"a:1"}]
    assert [excluded.names(shard) for shard in (SHARD, OTHER)] == [set(), {"a:1"}]


def test_nodes_of_an_older_ingest_are_left_out_on_all_shards(redis):
    redis.hset(left_out.KEY, "a:1", "deaf")
    assert ExcludedNodes(redis, ["a:1"]).names(OTHER) == {"a:1"}
