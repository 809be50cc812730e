-- The shards on which answers wait. It steps from one to the next by the index, however many answers each has.
CREATE VIEW answer_shards AS
WITH RECURSIVE shard AS (
    (SELECT pubsub_topic FROM answers ORDER BY pubsub_topic LIMIT 1)
    UNION ALL
    SELECT next.pubsub_topic FROM shard, LATERAL (
        SELECT pubsub_topic FROM answers WHERE pubsub_topic > shard.pubsub_topic ORDER BY pubsub_topic LIMIT 1
    ) AS next
)
TABLE shard;
