-- name: app_platforms
-- The earliest of each index, not any row: whatever the planner takes for their number, it reads no table.
SELECT app, platform FROM unfinished_deliveries AS each
WHERE least(
    (
        SELECT min(lease_until) FROM deliveries
        WHERE state = 'posting' AND deliveries.app = each.app AND deliveries.platform = each.platform
    ),
    (
        SELECT min(next_attempt_at) FROM deliveries
        WHERE state = 'pending' AND deliveries.app = each.app AND deliveries.platform = each.platform
    )
) <= now()

-- name: expired
SELECT count(*) FROM (
    SELECT FROM deliveries WHERE state = 'pending' AND expires_at <= now() ORDER BY expires_at LIMIT %(most)s
) AS limited

-- name: claim
-- Each has a share, and what one does not need the last one has: nothing that is due waits for ever behind the others.
WITH lapsed AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    WHERE state = 'posting' AND app = %(app)s AND platform = %(platform)s AND lease_until <= now()
    ORDER BY lease_until LIMIT (%(limit)s + 1) / 2 FOR UPDATE SKIP LOCKED
), newest AS MATERIALIZED (
    -- A new request that found no slot must not wait behind the backlog of an outage. Of an odd number chance decides.
    SELECT delivery_key FROM deliveries
    WHERE state = 'pending' AND attempt = 0 AND app = %(app)s AND platform = %(platform)s AND next_attempt_at <= now()
    ORDER BY next_attempt_at DESC
    LIMIT (%(limit)s - (SELECT count(*) FROM lapsed) + (random() < 0.5)::integer) / 2 FOR UPDATE SKIP LOCKED
), oldest AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    WHERE state = 'pending' AND app = %(app)s AND platform = %(platform)s AND next_attempt_at <= now()
    ORDER BY next_attempt_at LIMIT %(limit)s - (SELECT count(*) FROM lapsed) - (SELECT count(*) FROM newest)
    FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'pending',
    failure = CASE WHEN state = 'posting' THEN %(lease_lost)s ELSE failure END,
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + %(seconds)s * interval '1 second'
-- Not by a join: the planner does not know how few rows these are, and would read the whole table.
WHERE delivery_key = ANY (ARRAY(TABLE lapsed UNION TABLE newest UNION TABLE oldest))
RETURNING delivery_key, attempt, failure, task_id

-- name: claim_feedback
UPDATE deliveries SET feedback_due_at = now() + %(seconds)s * interval '1 second'
WHERE delivery_key = ANY (ARRAY(
    SELECT delivery_key FROM deliveries
    WHERE state = 'delivered' AND feedback IS NOT NULL AND feedback_due_at <= now()
    ORDER BY feedback_due_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))
RETURNING delivery_key
