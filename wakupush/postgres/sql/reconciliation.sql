-- name: missing
SELECT found.hash, EXISTS (
    SELECT FROM message_attempts
    WHERE message_hash = found.hash AND updated_at > now() - %(in_work)s * interval '1 second'
)
FROM (
    SELECT unnest(%(hashes)b::bytea[]) AS hash
    EXCEPT
    SELECT message_hash FROM ledger WHERE message_hash = ANY (%(hashes)b)
) AS found

-- name: watermark
SELECT walked_to FROM watermarks WHERE store = %(store)s AND pubsub_topic = %(pubsub_topic)s AND walk = %(walk)s

-- name: advance
INSERT INTO watermarks AS kept (store, pubsub_topic, walk, walked_to)
VALUES (%(store)s, %(pubsub_topic)s, %(walk)s, %(walked_to)s)
ON CONFLICT (store, pubsub_topic, walk) DO UPDATE
-- A watermark that was set by a clock that was ahead is corrected.
SET walked_to = CASE WHEN kept.walked_to > %(most)s THEN EXCLUDED.walked_to
        ELSE GREATEST(kept.walked_to, EXCLUDED.walked_to) END,
    updated_at = now()
RETURNING walked_to

-- name: place
INSERT INTO watermarks (store, pubsub_topic, walk, walked_to)
VALUES (%(store)s, %(pubsub_topic)s, %(walk)s, %(walked_to)s)
ON CONFLICT (store, pubsub_topic, walk) DO UPDATE SET walked_to = EXCLUDED.walked_to, updated_at = now()

-- name: watermarks
SELECT store, pubsub_topic, walk, (walked_to / 1e9)::float8 FROM watermarks
WHERE store = ANY (%(stores)s) ORDER BY store, pubsub_topic, walk
