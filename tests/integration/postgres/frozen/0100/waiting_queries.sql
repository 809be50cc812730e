-- name: add
INSERT INTO waiting_queries (
    message_hash, pubsub_topic, content_topic, payload, message_timestamp, meta, seen_at, due_at
)
SELECT hash, shard, topic, payload, timestamp, meta, to_timestamp(seen), now() + wait * interval '1 second'
FROM unnest(
    %(hash)b::bytea[], %(pubsub_topic)s::text[], %(content_topic)s::text[], %(payload)b::bytea[],
    %(timestamp)s::bigint[], %(meta)b::bytea[], %(seen)s::float8[], %(wait)s::float8[]
) AS new (hash, shard, topic, payload, timestamp, meta, seen, wait)
ORDER BY hash
ON CONFLICT DO NOTHING

-- name: topics
SELECT content_topic FROM (
    SELECT DISTINCT content_topic FROM waiting_queries WHERE due_at IS NULL
) AS topics
ORDER BY random() LIMIT %(most)s

-- name: wake
UPDATE waiting_queries SET due_at = now() WHERE due_at IS NULL AND content_topic = %(content_topic)s

-- name: take
DELETE FROM waiting_queries WHERE message_hash = ANY (ARRAY(
    SELECT message_hash FROM waiting_queries WHERE due_at <= now() ORDER BY due_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
))
RETURNING pubsub_topic, message_hash, extract(epoch FROM seen_at)::float8, payload, content_topic, message_timestamp, meta

-- name: expire
DELETE FROM waiting_queries WHERE seen_at < now() - %(keep)s * interval '1 second'

-- name: trim
-- Chance alone decides which stay: an order by age would shut out all later, or all earlier, queries.
DELETE FROM waiting_queries WHERE message_hash = ANY (ARRAY(
    SELECT message_hash FROM (
        SELECT message_hash, row_number() OVER drawn AS rows, sum(size) OVER drawn AS bytes
        FROM (
            SELECT message_hash, octet_length(payload) AS size, random() AS draw FROM waiting_queries
        ) AS all_of_them
        WINDOW drawn AS (ORDER BY draw, message_hash ROWS UNBOUNDED PRECEDING)
    ) AS ranked
    WHERE rows > %(rows)s OR bytes > %(bytes)s
))

-- name: count
SELECT count(*) FILTER (WHERE due_at IS NULL), count(*) FILTER (WHERE due_at IS NOT NULL) FROM waiting_queries
