-- name: page
SELECT message_hash, queue, reason, attempts, octet_length(payload), pubsub_topic, seen_at, quarantined_at, retried_at,
    key_hash IS NOT NULL
FROM quarantine
WHERE (%(end_key)s::bytea IS NULL OR (quarantined_at, message_hash) < (%(end_time)s, %(end_key)s)) {conditions}
ORDER BY quarantined_at DESC, message_hash DESC
LIMIT %(limit)s

-- name: count
SELECT count(*) FROM quarantine WHERE true {conditions}

-- name: retry
WITH chosen AS MATERIALIZED (
    SELECT message_hash, quarantined_at FROM quarantine
    WHERE (%(end_key)s::bytea IS NULL OR (quarantined_at, message_hash) > (%(end_time)s, %(end_key)s)) {conditions}
    ORDER BY quarantined_at, message_hash LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), unprocessed AS (
    DELETE FROM ledger WHERE message_hash = ANY (ARRAY(SELECT message_hash FROM chosen))
), refunded AS (
    DELETE FROM message_attempts USING chosen WHERE message_attempts.message_hash = chosen.message_hash
)
UPDATE quarantine SET retried_at = now()
FROM chosen
WHERE quarantine.message_hash = chosen.message_hash
RETURNING chosen.quarantined_at, quarantine.message_hash, queue, pubsub_topic, content_topic, payload,
    quarantine.message_timestamp, meta, extract(epoch FROM seen_at)::float8

-- name: drop
DELETE FROM quarantine WHERE message_hash = ANY (ARRAY(
    SELECT message_hash FROM quarantine
    WHERE (%(end_key)s::bytea IS NULL OR (quarantined_at, message_hash) > (%(end_time)s, %(end_key)s)) {conditions}
    ORDER BY quarantined_at, message_hash LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))
RETURNING quarantined_at, message_hash

-- name: conditions
AND (%(keys)b::bytea[] IS NULL OR message_hash = ANY (%(keys)b))
AND (%(queue)s::text IS NULL OR queue = %(queue)s)
AND (%(reason)s::text IS NULL OR reason = %(reason)s)
AND (%(since)s::timestamptz IS NULL OR quarantined_at >= %(since)s)
AND (%(until)s::timestamptz IS NULL OR quarantined_at <= %(until)s)

-- name: keys
SELECT message_hash FROM quarantine WHERE message_hash BETWEEN %(first)s AND %(last)s LIMIT 2

-- name: trim
-- Chance alone decides which stay. A table that is smaller than the limit is not read.
DELETE FROM quarantine WHERE (SELECT pg_total_relation_size('quarantine')) > %(bytes)s AND message_hash = ANY (ARRAY(
    SELECT message_hash FROM (
        SELECT message_hash, sum(size) OVER (ORDER BY draw, message_hash ROWS UNBOUNDED PRECEDING) AS bytes
        FROM (SELECT message_hash, octet_length(payload) AS size, random() AS draw FROM quarantine) AS all_of_them
    ) AS ranked
    WHERE bytes > %(bytes)s
))
