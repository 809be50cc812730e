-- name: add
INSERT INTO query_topics (key_hash, prefixed, topic)
SELECT * FROM unnest(%(key_hashes)s::bytea[], %(prefixed)s::boolean[], %(topics)s::bytea[])
ON CONFLICT DO NOTHING

-- name: candidates
SELECT topic, key_hash, prefixed, symmetric_key FROM query_topics WHERE topic = ANY (%(topics)s)

-- name: set_key
UPDATE query_topics SET symmetric_key = %(symmetric_key)s WHERE key_hash = %(key_hash)s AND prefixed = %(prefixed)s

-- name: all
SELECT DISTINCT topic FROM query_topics

-- name: lock_shared
SELECT pg_advisory_xact_lock_shared(%(lock)s)

-- name: lock
SELECT pg_advisory_xact_lock(%(lock)s)

-- name: remove_unused
WITH removed AS (
    DELETE FROM query_topics AS old
    WHERE NOT EXISTS (SELECT FROM registrations WHERE registrations.key_hash = old.key_hash AND registered)
    RETURNING topic, key_hash
)
SELECT DISTINCT topic FROM removed
WHERE NOT EXISTS (
    SELECT FROM query_topics AS other
    WHERE other.topic = removed.topic
        AND EXISTS (SELECT FROM registrations WHERE registrations.key_hash = other.key_hash AND registered)
)
