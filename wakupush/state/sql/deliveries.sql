-- name: add
INSERT INTO deliveries AS old (
    delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, state, attempt,
    lease, lease_until, seen_at, expires_at, task_id, trace_id
) VALUES (
    %(delivery_key)s, %(key_hash)s, %(installation_hash)s, %(platform)s, %(notification_type)s, %(chat_id)s,
    %(message)s, 'posting', 1, %(lease)s, now() + %(seconds)s * interval '1 second', to_timestamp(%(seen)s),
    now() + %(time_to_live)s * interval '1 second', %(task_id)s, %(trace_id)s
)
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

-- name: settle
UPDATE deliveries SET
    state = %(state)s,
    failure = %(failure)s,
    version = %(version)s,
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + %(wait)s * interval '1 second',
    finished_at = CASE WHEN %(finished)s THEN now() END,
    chat_id = CASE WHEN %(forget)s THEN NULL ELSE chat_id END,
    message = CASE WHEN %(forget)s THEN NULL ELSE message END
WHERE delivery_key = %(delivery_key)s AND state = 'posting' AND lease = %(lease)s
RETURNING delivery_key

-- name: put_back
UPDATE deliveries SET
    state = 'pending',
    attempt = attempt - 1,
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + interval '1 second'
WHERE delivery_key = %(delivery_key)s AND state = 'posting' AND lease = %(lease)s
