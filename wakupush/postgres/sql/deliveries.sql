-- name: take
WITH locked AS MATERIALIZED (
    SELECT delivery_key FROM deliveries WHERE delivery_key = ANY (%(delivery_key)b) AND state = 'pending'
    ORDER BY delivery_key FOR UPDATE
), taken AS (
    UPDATE deliveries SET
        state = 'posting',
        attempt = attempt + 1,
        feedback = NULL,
        next_attempt_at = NULL,
        lease = %(lease)s,
        lease_until = now() + %(seconds)s * interval '1 second'
    FROM unnest(%(delivery_key)b::bytea[], %(begun)b::smallint[]) AS claimed (delivery_key, begun)
    WHERE deliveries.delivery_key = claimed.delivery_key AND state = 'pending' AND attempt = claimed.begun
        AND deliveries.delivery_key = ANY (ARRAY(TABLE locked))
    RETURNING deliveries.*
)
SELECT taken.delivery_key, taken.key_hash, taken.installation_hash, taken.app, taken.platform, taken.notification_type,
    taken.sealed_content, taken.chat_digest, taken.author_digest, taken.access_token_digest, taken.attempt, taken.lease,
    taken.task_id, taken.trace_id, extract(epoch FROM taken.seen_at)::float8 AS seen, taken.failure,
    extract(epoch FROM taken.expires_at)::float8 AS expires_at, taken.expires_at <= now() AS expired,
    -- The device as it is now. A digest that was not kept keeps no notification back.
    device.version, device.token_type, device.sealed_device, device.suspected_at IS NOT NULL AS suspected,
    device.proven IS TRUE AS proven, device.enabled, device.block_mentions,
    device.allow_from_contacts_only AS contacts_only, false AS token_died,
    -- Users who got an earlier token may go on until the device gives its token to contacts only.
    NOT device.allow_from_contacts_only OR coalesce(device.access_token_digest = taken.access_token_digest, true)
        AS token_fits,
    digests_have(device.blocked_chat_digests, taken.author_digest) AS author_blocked,
    digests_have(device.blocked_chat_digests, taken.chat_digest) AS chat_blocked,
    digests_have(device.muted_chat_digests, taken.chat_digest) AS chat_muted,
    taken.chat_digest IS NULL OR digests_have(device.allowed_mentions_chat_digests, taken.chat_digest)
        AS mention_allowed
FROM taken
LEFT JOIN registrations AS device ON device.key_hash = taken.key_hash
    AND device.installation_hash = taken.installation_hash
    AND device.registered AND device.enabled AND device.token_died_at IS NULL

-- name: lock
SELECT delivery_key, feedback FROM deliveries WHERE delivery_key = ANY (%(delivery_key)b) ORDER BY delivery_key FOR UPDATE

-- name: settle
UPDATE deliveries SET
    state = new.state,
    attempt = CASE WHEN new.counted THEN attempt ELSE attempt - 1 END,
    failure = new.failure,
    feedback = NULL,
    version = new.version,
    -- By it a late report of gorush's webhook is known to be about this attempt.
    lease = CASE WHEN new.state = 'delivered' THEN deliveries.lease END,
    lease_until = NULL,
    next_attempt_at = now() + new.wait * interval '1 second',
    finished_at = CASE WHEN new.finished THEN now() END,
    sealed_content = CASE WHEN new.forget THEN NULL ELSE sealed_content END,
    chat_digest = CASE WHEN new.forget THEN NULL ELSE chat_digest END,
    author_digest = CASE WHEN new.forget THEN NULL ELSE author_digest END,
    access_token_digest = CASE WHEN new.forget THEN NULL ELSE access_token_digest END,
    -- A delivered one may still turn out to have failed.
    trace_id = CASE WHEN new.state = 'failed' THEN NULL ELSE trace_id END
FROM unnest(
    %(delivery_key)b::bytea[], %(lease)b::uuid[], %(state)b::text[], %(failure)b::text[], %(version)b::numeric[],
    %(wait)b::float8[], %(counted)b::boolean[], %(finished)b::boolean[], %(forget)b::boolean[]
) AS new (delivery_key, lease, state, failure, version, wait, counted, finished, forget)
WHERE deliveries.delivery_key = new.delivery_key AND deliveries.state = 'posting' AND deliveries.lease = new.lease
RETURNING deliveries.delivery_key

-- name: expire
WITH expired AS MATERIALIZED (
    SELECT delivery_key FROM deliveries WHERE state = 'pending' AND expires_at <= now()
    ORDER BY expires_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'expired',
    failure = %(failure)s,
    next_attempt_at = NULL,
    finished_at = now()
WHERE delivery_key = ANY (ARRAY(TABLE expired))
RETURNING delivery_key, key_hash, installation_hash, app, platform, notification_type, attempt, task_id, trace_id,
    extract(epoch FROM seen_at)::float8 AS seen, extract(epoch FROM expires_at)::float8 AS expires_at, failure, version,
    false AS proven

-- name: put_back
UPDATE deliveries SET
    state = 'pending',
    attempt = attempt - 1,
    failure = NULLIF(failure, %(lease_lost)s),
    lease = NULL,
    lease_until = NULL,
    next_attempt_at = now() + interval '1 second'
FROM unnest(%(delivery_key)b::bytea[], %(lease)b::uuid[]) AS new (delivery_key, lease)
WHERE deliveries.delivery_key = new.delivery_key AND deliveries.state = 'posting' AND deliveries.lease = new.lease

-- name: note_feedback
UPDATE deliveries SET
    feedback = %(failure)s,
    feedback_due_at = CASE WHEN state = 'delivered' THEN now() END
WHERE delivery_key = %(delivery_key)s AND attempt = %(attempt)s AND state IN ('posting', 'delivered')
    AND (%(lease)s::uuid IS NULL OR lease = %(lease)s)
    AND (%(apps)b::text[] IS NULL OR app = ANY (%(apps)b))

-- name: takes_feedback
SELECT feedback FROM deliveries LIMIT 0

-- name: exists
SELECT FROM deliveries WHERE delivery_key = %(delivery_key)s

-- name: lock_devices
SELECT FROM registrations
WHERE (key_hash, installation_hash) IN (
    SELECT key_hash, installation_hash FROM deliveries
    WHERE delivery_key = ANY (%(delivery_keys)b) AND state = 'delivered' AND feedback IS NOT NULL
)
ORDER BY key_hash, installation_hash FOR NO KEY UPDATE

-- name: apply_feedback
WITH locked AS MATERIALIZED (
    SELECT delivery_key, trace_id FROM deliveries
    WHERE delivery_key = ANY (%(delivery_keys)b) AND state = 'delivered' AND feedback IS NOT NULL
    ORDER BY delivery_key FOR UPDATE
)
UPDATE deliveries SET
    state = 'failed',
    failure = feedback,
    feedback = NULL,
    feedback_due_at = NULL,
    lease = NULL,
    trace_id = NULL
FROM locked
WHERE deliveries.delivery_key = ANY (ARRAY(SELECT delivery_key FROM locked))
    AND deliveries.delivery_key = locked.delivery_key
RETURNING deliveries.delivery_key, key_hash, installation_hash, app, platform, notification_type, attempt, task_id,
    locked.trace_id,
    extract(epoch FROM seen_at)::float8 AS seen, extract(epoch FROM expires_at)::float8 AS expires_at, failure, version,
    EXISTS (
        SELECT FROM registrations AS device
        WHERE device.key_hash = deliveries.key_hash AND device.installation_hash = deliveries.installation_hash
            AND device.version = deliveries.version AND device.proven
    ) AS proven
