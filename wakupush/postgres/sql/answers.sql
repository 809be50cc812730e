-- name: add
INSERT INTO answers (pubsub_topic, content_topic, payload, trace_id, publish_at)
SELECT shard, topic, payload, trace, now() + %(hold)s * interval '1 second'
FROM unnest(%(pubsub_topics)s::text[], %(content_topics)s::text[], %(payloads)b::bytea[], %(trace_ids)s::text[])
    WITH ORDINALITY AS new (shard, topic, payload, trace, position)
ORDER BY position
RETURNING id

-- name: remove
DELETE FROM answers WHERE id = ANY (%(ids)s)

-- name: withdraw
-- Claiming and postponing change `publish_at`.
DELETE FROM answers WHERE id = ANY (%(ids)s) AND publish_at = created_at + %(hold)s * interval '1 second' RETURNING id

-- name: postpone
UPDATE answers SET publish_at = now() + %(seconds)s * interval '1 second' WHERE id = ANY (%(ids)s)

-- name: claim
UPDATE answers SET publish_at = now() + %(hold)s * interval '1 second'
WHERE id IN (
    SELECT id FROM answers WHERE publish_at <= now() ORDER BY publish_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id, pubsub_topic, content_topic, payload, trace_id

-- name: expire
DELETE FROM answers WHERE created_at < now() - %(keep)s * interval '1 second'
