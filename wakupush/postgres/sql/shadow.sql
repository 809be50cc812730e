-- name: begin
INSERT INTO shadow DEFAULT VALUES ON CONFLICT DO NOTHING

-- name: state
SELECT extract(epoch FROM begun_at)::float8, extract(epoch FROM ended_at)::float8,
    extract(epoch FROM answers_since)::float8
FROM shadow

-- name: end
UPDATE shadow SET ended_at = now(), answers_since = to_timestamp(%(answers_since)s) WHERE ended_at IS NULL

-- name: keep
INSERT INTO shadowed_messages (
    message_hash, queue, pubsub_topic, content_topic, payload, message_timestamp, meta, seen_at, answer_topic,
    answer_bytes, request_id
)
SELECT hash, queue, shard, topic, payload, timestamp, meta, to_timestamp(seen), answer, bytes, request
FROM unnest(
    %(hash)b::bytea[], %(queue)s::text[], %(pubsub_topic)s::text[], %(content_topic)s::text[], %(payload)b::bytea[],
    %(timestamp)s::bigint[], %(meta)b::bytea[], %(seen)s::float8[], %(answer_topic)s::text[], %(answer_bytes)s::integer[],
    %(request_id)b::bytea[]
) AS new (hash, queue, shard, topic, payload, timestamp, meta, seen, answer, bytes, request)
ORDER BY hash
ON CONFLICT DO NOTHING

-- name: take
DELETE FROM shadowed_messages WHERE message_hash = ANY (ARRAY(
    SELECT message_hash FROM shadowed_messages
    WHERE seen_at >= (SELECT answers_since FROM shadow)
    ORDER BY seen_at LIMIT %(most)s
))
RETURNING queue, pubsub_topic, message_hash, extract(epoch FROM seen_at)::float8, payload, content_topic,
    message_timestamp, meta

-- name: forget
-- The other server answered them: their requests are over.
WITH gone AS (
    DELETE FROM shadowed_messages
    WHERE seen_at < coalesce((SELECT answers_since FROM shadow), now() - %(keep)s * interval '1 second')
    RETURNING request_id
), remembered AS (
    INSERT INTO admitted_requests (message_id, succeeded, expired)
    SELECT DISTINCT request_id, '', true FROM gone WHERE request_id IS NOT NULL ORDER BY request_id
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone

-- name: trim
-- Chance alone decides which stay, as for queries that wait. The requests of the others are over: none is pushed twice.
WITH gone AS (
    DELETE FROM shadowed_messages WHERE message_hash = ANY (ARRAY(
        SELECT message_hash FROM (
            SELECT message_hash, row_number() OVER drawn AS rows, sum(size) OVER drawn AS bytes
            FROM (
                SELECT message_hash, octet_length(payload) AS size, random() AS draw FROM shadowed_messages
            ) AS all_of_them
            WINDOW drawn AS (ORDER BY draw, message_hash ROWS UNBOUNDED PRECEDING)
        ) AS ranked
        WHERE rows > %(rows)s OR bytes > %(bytes)s
    ))
    RETURNING request_id
), remembered AS (
    INSERT INTO admitted_requests (message_id, succeeded, expired)
    SELECT DISTINCT request_id, '', true FROM gone WHERE request_id IS NOT NULL ORDER BY request_id
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone

-- name: count
SELECT count(*), coalesce(sum(octet_length(payload)), 0) FROM shadowed_messages

-- name: count_since
SELECT count(*) FROM shadowed_messages WHERE seen_at >= to_timestamp(%(since)s)

-- name: sample
SELECT queue, pubsub_topic, answer_topic, answer_bytes, extract(epoch FROM seen_at)::float8
FROM shadowed_messages
WHERE seen_at < to_timestamp(%(before)s)
ORDER BY random() LIMIT %(most)s
