-- name: add
INSERT INTO waiting_queries (
    message_hash, pubsub_topic, content_topic, payload, message_timestamp, meta, seen_at, due_at
)
SELECT hash, shard, topic, payload, timestamp, meta, to_timestamp(seen), now() + wait * interval '1 second'
FROM unnest(
    %(hash)b::bytea[], %(pubsub_topic)b::text[], %(content_topic)b::text[], %(payload)b::bytea[],
    %(timestamp)b::bigint[], %(meta)b::bytea[], %(seen)b::float8[], %(wait)b::float8[]
) AS new (hash, shard, topic, payload, timestamp, meta, seen, wait)
ORDER BY hash
ON CONFLICT DO NOTHING

-- name: awaited
-- A topic has one turn, however many users share it. Those that clients use come before those with 0x; among them a draw
-- of an age decides, so that many users of one age do not delay those of another one.
SELECT key_hash, prefixed FROM (
    SELECT DISTINCT content_topic FROM waiting_queries WHERE due_at IS NULL
) AS waiting
CROSS JOIN LATERAL (
    SELECT key_hash, prefixed, added_at FROM query_topics
    WHERE topic = decode(substr(content_topic, 11, 8), 'hex') AND symmetric_key IS NULL
    ORDER BY prefixed, random() LIMIT 1
) AS users
ORDER BY prefixed, abs(ln(greatest(1, extract(epoch FROM now() - added_at))) - ln(%(age)s::float8)), random()
LIMIT %(most)s

-- name: wake
UPDATE waiting_queries SET due_at = now()
WHERE due_at IS NULL AND NOT EXISTS (
    SELECT FROM query_topics WHERE topic = decode(substr(content_topic, 11, 8), 'hex') AND symmetric_key IS NULL
)

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
