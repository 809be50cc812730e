-- name: add
INSERT INTO query_topics (key_hash, prefixed, topic)
SELECT * FROM unnest(%(key_hashes)b::bytea[], %(prefixed)b::boolean[], %(topics)b::bytea[])
ON CONFLICT DO NOTHING

-- name: candidates
-- Of a topic that too many share, users come first to whom some platform delivered: all others can be made up.
SELECT topic, key_hash, prefixed, symmetric_key FROM (
    SELECT topic, key_hash, prefixed, symmetric_key,
        row_number() OVER (PARTITION BY topic ORDER BY is_proven DESC, random()) AS place
    FROM (
        SELECT topic, key_hash, prefixed, symmetric_key, CASE
            WHEN count(*) OVER (PARTITION BY topic) > %(most)s THEN EXISTS (
                SELECT FROM registrations WHERE registrations.key_hash = query_topics.key_hash AND proven
            )
        END AS is_proven
        FROM query_topics WHERE topic = ANY (%(topics)b)
    ) AS users
) AS ranked
WHERE place <= %(most)s

-- name: all
SELECT DISTINCT topic FROM query_topics ORDER BY topic

-- name: since
-- Of past days only the day is known.
SELECT DISTINCT topic FROM query_topics
WHERE added_at >= date_trunc('day', to_timestamp(%(since)s), 'UTC')
    AND (added_at >= to_timestamp(%(since)s) OR written_on IS NULL)
ORDER BY topic

-- name: lock_shared
SELECT pg_advisory_xact_lock_shared(%(lock)s)

-- name: lock
SELECT pg_advisory_xact_lock(%(lock)s)

-- name: unused
-- Postgres guesses badly how many rows a parameter's LIMIT lets through. The second one keeps it from reading all
-- registrations for a few topics.
WITH part AS MATERIALIZED (
    SELECT key_hash FROM query_topics WHERE key_hash > %(after)s ORDER BY key_hash LIMIT %(most)s
)
SELECT
    (SELECT key_hash FROM part ORDER BY key_hash DESC LIMIT 1),
    ARRAY(
        SELECT key_hash FROM (SELECT DISTINCT key_hash FROM part) AS users
        LEFT JOIN LATERAL (
            SELECT true AS is_registered FROM registrations
            WHERE registrations.key_hash = users.key_hash AND registered LIMIT 1
        ) AS registration ON true
        WHERE is_registered IS NULL
        ORDER BY key_hash
    )

-- name: remove_unused
WITH unused AS MATERIALIZED (
    SELECT key_hash FROM unnest(%(key_hashes)b::bytea[]) AS users (key_hash)
    LEFT JOIN LATERAL (
        SELECT true AS is_registered FROM registrations
        WHERE registrations.key_hash = users.key_hash AND registered LIMIT 1
    ) AS registration ON true
    WHERE is_registered IS NULL
), removed AS (
    DELETE FROM query_topics WHERE key_hash = ANY (ARRAY(SELECT key_hash FROM unused)) RETURNING topic
)
SELECT DISTINCT topic FROM removed
LEFT JOIN LATERAL (
    SELECT true AS is_used FROM query_topics AS other JOIN registrations USING (key_hash)
    WHERE other.topic = removed.topic AND registered LIMIT 1
) AS collision ON true
WHERE is_used IS NULL

-- name: count_without_key
SELECT count(*) FROM query_topics WHERE symmetric_key IS NULL

-- name: without_key
SELECT key_hash FROM query_topics
WHERE symmetric_key IS NULL AND prefixed = %(prefixed)s AND key_hash > %(after)s
ORDER BY key_hash
LIMIT %(most)s

-- name: underived
SELECT key_hash, prefixed FROM query_topics
WHERE symmetric_key IS NULL AND NOT prefixed
ORDER BY added_at DESC
LIMIT %(most)s

-- name: set_keys
UPDATE query_topics AS stored SET symmetric_key = new.symmetric_key
FROM unnest(%(key_hashes)b::bytea[], %(symmetric_keys)b::bytea[]) AS new (key_hash, symmetric_key)
WHERE stored.key_hash = new.key_hash AND stored.prefixed = %(prefixed)s AND stored.symmetric_key IS NULL
