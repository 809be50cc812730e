-- name: add
INSERT INTO deliveries AS old (
    delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, state, attempt,
    lease, lease_until, seen_at, expires_at, task_id, trace_id
)
SELECT
    delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, 'posting', 1, lease,
    now() + %(seconds)s * interval '1 second', to_timestamp(seen), now() + %(time_to_live)s * interval '1 second',
    task_id, trace_id
FROM unnest(
    %(delivery_key)s::bytea[], %(key_hash)s::bytea[], %(installation_hash)s::bytea[], %(platform)s::smallint[],
    %(notification_type)s::smallint[], %(chat_id)s::bytea[], %(message)s::bytea[], %(lease)s::uuid[],
    %(seen)s::float8[], %(task_id)s::text[], %(trace_id)s::text[]
) AS new (
    delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, lease, seen, task_id,
    trace_id
)
ORDER BY delivery_key
ON CONFLICT (delivery_key) DO UPDATE SET
    chat_id = excluded.chat_id,
    message = excluded.message,
    state = excluded.state,
    attempt = excluded.attempt,
    failure = NULL,
    lease = excluded.lease,
    lease_until = excluded.lease_until,
    seen_at = excluded.seen_at,
    expires_at = excluded.expires_at,
    finished_at = NULL,
    task_id = excluded.task_id,
    trace_id = excluded.trace_id
WHERE old.state IN ('failed', 'expired', 'dead_letter')
RETURNING delivery_key

-- name: claim
WITH waiting AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    WHERE state = 'pending' AND next_attempt_at <= now()
    ORDER BY next_attempt_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), lapsed AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    WHERE state = 'posting' AND lease_until <= now()
    ORDER BY lease_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), due AS (
    SELECT delivery_key FROM waiting UNION ALL SELECT delivery_key FROM lapsed
)
UPDATE deliveries SET
    state = 'pending',
    failure = CASE WHEN state = 'posting' THEN %(lease_lost)s ELSE failure END,
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + %(seconds)s * interval '1 second'
FROM due
WHERE deliveries.delivery_key = due.delivery_key
RETURNING deliveries.delivery_key, platform, attempt, failure, task_id

-- name: take
UPDATE deliveries SET
    state = 'posting',
    attempt = attempt + 1,
    next_attempt_at = NULL,
    lease = %(lease)s,
    lease_until = now() + %(seconds)s * interval '1 second'
WHERE delivery_key = ANY (%(delivery_keys)s) AND state = 'pending' AND attempt = %(begun)s
RETURNING delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, attempt, lease,
    task_id, trace_id, extract(epoch FROM seen_at)::float8, failure, expires_at <= now()

-- name: lock
SELECT FROM deliveries WHERE delivery_key = ANY (%(delivery_key)s) ORDER BY delivery_key FOR UPDATE

-- name: settle
UPDATE deliveries SET
    state = new.state,
    failure = new.failure,
    version = new.version,
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + new.wait * interval '1 second',
    finished_at = CASE WHEN new.finished THEN now() END,
    chat_id = CASE WHEN new.forget THEN NULL ELSE chat_id END,
    message = CASE WHEN new.forget THEN NULL ELSE message END
FROM unnest(
    %(delivery_key)s::bytea[], %(lease)s::uuid[], %(state)s::text[], %(failure)s::text[], %(version)s::numeric[],
    %(wait)s::float8[], %(finished)s::boolean[], %(forget)s::boolean[]
) AS new (delivery_key, lease, state, failure, version, wait, finished, forget)
WHERE deliveries.delivery_key = new.delivery_key AND deliveries.state = 'posting' AND deliveries.lease = new.lease
RETURNING deliveries.delivery_key

-- name: put_back
UPDATE deliveries SET
    state = 'pending',
    attempt = attempt - 1,
    failure = NULLIF(failure, %(lease_lost)s),
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + interval '1 second'
FROM unnest(%(delivery_key)s::bytea[], %(lease)s::uuid[]) AS new (delivery_key, lease)
WHERE deliveries.delivery_key = new.delivery_key AND deliveries.state = 'posting' AND deliveries.lease = new.lease
