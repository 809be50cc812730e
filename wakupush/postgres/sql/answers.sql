-- name: add
INSERT INTO answers (pubsub_topic, content_topic, payload, trace_id, publish_at)
SELECT shard, topic, payload, trace, now() + %(hold)s * interval '1 second'
FROM unnest(%(pubsub_topics)b::text[], %(content_topics)b::text[], %(payloads)b::bytea[], %(trace_ids)b::text[])
    WITH ORDINALITY AS new (shard, topic, payload, trace, position)
ORDER BY position
RETURNING id

-- name: remove
DELETE FROM answers WHERE id = ANY (%(ids)b)

-- name: withdraw
-- Claiming and postponing change `publish_at`.
DELETE FROM answers WHERE id = ANY (%(ids)b) AND publish_at = created_at + %(hold)s * interval '1 second' RETURNING id

-- name: postpone
-- An answer that has waited for long waits longer: it is published some thirty times in ten minutes.
UPDATE answers SET publish_at = now() + greatest(%(seconds)s * interval '1 second', (now() - created_at) / 4)
WHERE id = ANY (%(ids)b)

-- name: claim
-- The newest of each shard, whose clients still wait.
UPDATE answers SET publish_at = now() + %(hold)s * interval '1 second'
WHERE id = ANY (ARRAY(
    SELECT id FROM (
        SELECT newest.id, sum(size) OVER (ORDER BY newest.created_at DESC, newest.id DESC) - size AS before
        FROM answer_shards AS shard
        LEFT JOIN unnest(%(shards)b::text[], %(limits)b::integer[]) AS noted (pubsub_topic, most) USING (pubsub_topic)
        CROSS JOIN LATERAL (
            SELECT id, created_at, octet_length(payload) AS size FROM answers
            WHERE pubsub_topic = shard.pubsub_topic AND publish_at <= now()
            ORDER BY created_at DESC
            LIMIT coalesce(noted.most, %(limit)s)
            FOR UPDATE SKIP LOCKED
        ) AS newest
    ) AS overdue
    WHERE before < %(bytes)s
))
RETURNING id, pubsub_topic, content_topic, payload, trace_id, extract(epoch FROM now() - created_at)::float8

-- name: expire
DELETE FROM answers WHERE id = ANY (ARRAY(
    SELECT id FROM answer_shards AS shard
    CROSS JOIN LATERAL (
        SELECT id FROM answers
        WHERE pubsub_topic = shard.pubsub_topic AND created_at < now() - %(keep)s * interval '1 second'
        ORDER BY created_at
        LIMIT %(limit)s
    ) AS oldest
))
