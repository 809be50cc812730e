-- name: add
INSERT INTO deliveries AS old (
    delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, state, attempt,
    lease, lease_until, seen_at, expires_at, task_id, trace_id
)
SELECT
    delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, 'posting', 1, lease,
    now() + %(seconds)s * interval '1 second', to_timestamp(seen), now() + time_to_live * interval '1 second',
    task_id, trace_id
FROM unnest(
    %(delivery_key)b::bytea[], %(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(platform)s::smallint[],
    %(notification_type)s::smallint[], %(chat_id)b::bytea[], %(message)b::bytea[], %(lease)s::uuid[],
    %(seen)s::float8[], %(time_to_live)s::float8[], %(task_id)s::text[], %(trace_id)s::text[]
) AS new (
    delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, lease, seen, time_to_live,
    task_id, trace_id
)
ORDER BY delivery_key
ON CONFLICT (delivery_key) DO UPDATE SET
    chat_id = excluded.chat_id,
    message = excluded.message,
    state = excluded.state,
    attempt = excluded.attempt,
    failure = NULL,
    feedback = NULL,
    feedback_due_at = NULL,
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
WITH lapsed AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    WHERE state = 'posting' AND platform = %(platform)s AND lease_until <= now()
    ORDER BY lease_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), first AS MATERIALIZED (
    -- The newest first: a new request that found no slot is not to wait behind what an outage left.
    SELECT delivery_key FROM deliveries
    WHERE state = 'pending' AND attempt = 0 AND platform = %(platform)s AND next_attempt_at <= now()
    ORDER BY next_attempt_at DESC LIMIT %(limit)s - (SELECT count(*) FROM lapsed) FOR UPDATE SKIP LOCKED
), again AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    WHERE state = 'pending' AND attempt > 0 AND platform = %(platform)s AND next_attempt_at <= now()
    ORDER BY next_attempt_at LIMIT %(limit)s - (SELECT count(*) FROM lapsed) - (SELECT count(*) FROM first)
    FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'pending',
    failure = CASE WHEN state = 'posting' THEN %(lease_lost)s ELSE failure END,
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + %(seconds)s * interval '1 second'
-- Not by a join: not knowing how few they are, the planner would read the whole table.
WHERE delivery_key = ANY (ARRAY(TABLE lapsed UNION ALL TABLE first UNION ALL TABLE again))
RETURNING delivery_key, platform, attempt, failure, task_id

-- name: take
UPDATE deliveries SET
    state = 'posting',
    attempt = attempt + 1,
    feedback = NULL,
    next_attempt_at = NULL,
    lease = %(lease)s,
    lease_until = now() + %(seconds)s * interval '1 second'
FROM unnest(%(delivery_key)b::bytea[], %(begun)s::smallint[]) AS claimed (delivery_key, begun)
WHERE deliveries.delivery_key = claimed.delivery_key AND state = 'pending' AND attempt = claimed.begun
RETURNING deliveries.delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, attempt,
    lease, task_id, trace_id, extract(epoch FROM seen_at)::float8, failure, expires_at <= now()

-- name: lock
SELECT delivery_key, feedback FROM deliveries WHERE delivery_key = ANY (%(delivery_key)b) ORDER BY delivery_key FOR UPDATE

-- name: settle
UPDATE deliveries SET
    state = new.state,
    attempt = CASE WHEN new.counted THEN attempt ELSE attempt - 1 END,
    failure = new.failure,
    feedback = NULL,
    version = new.version,
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + new.wait * interval '1 second',
    finished_at = CASE WHEN new.finished THEN now() END,
    chat_id = CASE WHEN new.forget THEN NULL ELSE chat_id END,
    message = CASE WHEN new.forget THEN NULL ELSE message END
FROM unnest(
    %(delivery_key)b::bytea[], %(lease)s::uuid[], %(state)s::text[], %(failure)s::text[], %(version)s::numeric[],
    %(wait)s::float8[], %(counted)s::boolean[], %(finished)s::boolean[], %(forget)s::boolean[]
) AS new (delivery_key, lease, state, failure, version, wait, counted, finished, forget)
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
FROM unnest(%(delivery_key)b::bytea[], %(lease)s::uuid[]) AS new (delivery_key, lease)
WHERE deliveries.delivery_key = new.delivery_key AND deliveries.state = 'posting' AND deliveries.lease = new.lease

-- name: note_feedback
UPDATE deliveries SET
    feedback = %(failure)s,
    feedback_due_at = CASE WHEN state = 'delivered' THEN now() END
WHERE delivery_key = %(delivery_key)s AND attempt = %(attempt)s AND state IN ('posting', 'delivered')

-- name: exists
SELECT FROM deliveries WHERE delivery_key = %(delivery_key)s

-- name: claim_feedback
WITH due AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    WHERE state = 'delivered' AND feedback IS NOT NULL AND feedback_due_at <= now()
    ORDER BY feedback_due_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET feedback_due_at = now() + %(seconds)s * interval '1 second'
FROM due
WHERE deliveries.delivery_key = due.delivery_key
RETURNING deliveries.delivery_key

-- name: apply_feedback
UPDATE deliveries SET state = 'failed', failure = feedback, feedback = NULL, feedback_due_at = NULL
WHERE delivery_key = ANY (%(delivery_keys)b) AND state = 'delivered' AND feedback IS NOT NULL
RETURNING delivery_key, key_hash, installation_hash, platform, notification_type, attempt, task_id, trace_id,
    extract(epoch FROM seen_at)::float8, failure, version
