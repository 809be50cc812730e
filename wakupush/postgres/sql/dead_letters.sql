-- name: page
SELECT delivery_key, state, app, platform, failure, attempt, seen_at, finished_at, expires_at, trace_id
FROM deliveries
WHERE state IN ('dead_letter', 'expired') {conditions}
ORDER BY finished_at DESC, delivery_key DESC
LIMIT %(limit)s

-- name: count
SELECT count(*) FROM deliveries WHERE state IN ('dead_letter', 'expired') {conditions}

-- name: retry
WITH chosen AS MATERIALIZED (
    SELECT finished_at, delivery_key FROM deliveries
    WHERE state IN ('dead_letter', 'expired') {conditions}
    ORDER BY finished_at, delivery_key LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'pending',
    attempt = 0,
    failure = NULL,
    next_attempt_at = now(),
    expires_at = now() + seconds * interval '1 second',
    finished_at = NULL
FROM chosen, unnest(%(types)b::smallint[], %(seconds)b::float8[]) AS life (type, seconds)
WHERE deliveries.delivery_key = chosen.delivery_key AND deliveries.notification_type = life.type
RETURNING chosen.finished_at, chosen.delivery_key

-- name: drop
DELETE FROM deliveries WHERE delivery_key = ANY (ARRAY(
    SELECT delivery_key FROM deliveries
    WHERE state IN ('dead_letter', 'expired') {conditions}
    ORDER BY finished_at, delivery_key LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))
RETURNING finished_at, delivery_key

-- name: of_keys
AND delivery_key = ANY (%(of_keys)b)

-- name: of_reason
AND failure = %(of_reason)s

-- name: of_platform
AND platform = %(of_platform)s

-- name: since
AND finished_at >= %(since)s

-- name: until
AND finished_at <= %(until)s

-- name: before
AND (finished_at, delivery_key) < (%(end_time)s, %(end_key)s)

-- name: after
AND (finished_at, delivery_key) > (%(end_time)s, %(end_key)s)

-- name: keys
SELECT delivery_key FROM deliveries
WHERE state IN ('dead_letter', 'expired') AND delivery_key BETWEEN %(first)s AND %(last)s
LIMIT 2

-- name: device
SELECT registered, token_died_at, coalesce(cardinality(suspected_at), 0), registrations.version = deliveries.version
FROM deliveries
JOIN registrations USING (key_hash, installation_hash)
WHERE delivery_key = %(key)s

-- name: events
-- The newest, of which the last says what became of it.
SELECT time, kind, queue, worker, app, platform, failure, reason, attempt, count, key_pseudonym, installation_pseudonym
FROM (
    SELECT * FROM delivery_history
    WHERE trace_id = ANY (%(trace_ids)s) AND time >= %(since)s
    ORDER BY id DESC, step DESC
    LIMIT %(limit)s
) AS newest
ORDER BY id, step

-- name: counts
-- Those of each reason up to a bound: from one reason to the next by the index, however many dead letters each has.
WITH RECURSIVE reason AS (
    (
        SELECT failure FROM deliveries WHERE state IN ('dead_letter', 'expired') AND failure IS NOT NULL
        ORDER BY failure LIMIT 1
    )
    UNION ALL
    SELECT next.failure FROM reason, LATERAL (
        SELECT failure FROM deliveries WHERE state IN ('dead_letter', 'expired') AND failure > reason.failure
        ORDER BY failure LIMIT 1
    ) AS next
)
SELECT app, platform, failure, count(*) FROM (
    SELECT newest.* FROM reason, LATERAL (
        SELECT app, platform, failure FROM deliveries
        WHERE state IN ('dead_letter', 'expired') AND failure = reason.failure
        ORDER BY finished_at DESC LIMIT %(most)s
    ) AS newest
    UNION ALL
    (
        SELECT app, platform, failure FROM deliveries
        WHERE state IN ('dead_letter', 'expired') AND failure IS NULL
        ORDER BY failure, finished_at LIMIT %(most)s
    )
) AS dead_letter
GROUP BY app, platform, failure

-- name: now
SELECT now()
