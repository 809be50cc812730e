-- name: admitted
SELECT message_id, week, succeeded, expired FROM admitted_requests WHERE message_id = ANY (%(ids)b) ORDER BY week

-- name: failed
SELECT delivery_key, failure FROM deliveries
WHERE delivery_key = ANY (%(delivery_keys)b) AND state IN ('failed', 'expired', 'dead_letter')

-- name: receivers
-- The lists are read only for a request that has the access token.
SELECT wanted.position, token_died_at IS NOT NULL AS token_died,
    access_token_digest = wanted.access_token AS token_fits, enabled, block_mentions,
    digests_have(lists.blocked, wanted.author) AS author_blocked,
    digests_have(lists.blocked, wanted.chat) AS chat_blocked,
    digests_have(lists.muted, wanted.chat) AS chat_muted,
    digests_have(lists.mentions, wanted.chat) AS mention_allowed,
    allow_from_contacts_only AS contacts_only, version, token_type, lists.sealed_device,
    suspected_at IS NOT NULL AS suspected, proven IS TRUE AS proven
FROM unnest(
    %(key_hashes)b::bytea[], %(installation_hashes)b::bytea[], %(access_tokens)b::bytea[], %(chats)b::bytea[],
    %(authors)b::bytea[]
) WITH ORDINALITY AS wanted (key, installation, access_token, chat, author, position)
JOIN registrations ON key_hash = wanted.key AND installation_hash = wanted.installation
LEFT JOIN LATERAL (
    SELECT blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests, sealed_device
    WHERE access_token_digest = wanted.access_token
) AS lists (blocked, muted, mentions, sealed_device) ON true
WHERE registered

-- name: take_on
WITH remembered AS (
    INSERT INTO admitted_requests (message_id, week, succeeded)
    SELECT message_id, coalesce(week, this_week()), succeeded
    FROM unnest(%(message_ids)b::bytea[], %(weeks)b::date[], %(succeeded)b::text[]) AS new (message_id, week, succeeded)
    ORDER BY message_id
    -- Another envelope may have come too late in the same moment: this one is pushed.
    ON CONFLICT (message_id, week) DO UPDATE SET succeeded = excluded.succeeded, expired = false
)
INSERT INTO deliveries AS old (
    delivery_key, key_hash, installation_hash, app, platform, notification_type, sealed_content, chat_digest,
    author_digest, access_token_digest, state, attempt, lease, lease_until, seen_at, expires_at, task_id, trace_id
)
SELECT
    delivery_key, key_hash, installation_hash, app, platform, notification_type, sealed_content, chat_digest,
    author_digest, access_token_digest, 'posting', 1, lease, now() + %(seconds)s * interval '1 second', to_timestamp(seen),
    to_timestamp(expires), task_id, trace_id
FROM unnest(
    %(delivery_key)b::bytea[], %(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(app)b::text[],
    %(platform)b::smallint[], %(notification_type)b::smallint[], %(sealed_content)b::bytea[],
    %(chat_digest)b::bytea[], %(author_digest)b::bytea[], %(access_token_digest)b::bytea[], %(lease)b::uuid[], %(seen)b::float8[],
    %(expires)b::float8[], %(task_id)b::text[], %(trace_id)b::text[]
) AS new (
    delivery_key, key_hash, installation_hash, app, platform, notification_type, sealed_content, chat_digest,
    author_digest, access_token_digest, lease, seen, expires, task_id, trace_id
)
ORDER BY delivery_key
ON CONFLICT (delivery_key) DO UPDATE SET
    -- The one notification that a device gets beyond its limit may be for another user, who registered it too.
    key_hash = excluded.key_hash,
    installation_hash = excluded.installation_hash,
    app = excluded.app,
    platform = excluded.platform,
    sealed_content = excluded.sealed_content,
    chat_digest = excluded.chat_digest,
    author_digest = excluded.author_digest,
    access_token_digest = excluded.access_token_digest,
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
RETURNING delivery_key, NOT EXISTS (SELECT FROM schema_migrations WHERE name = '0108_post_seals') AS old_code_may_run

-- name: seal_for_old_code
-- The form that code before migration 0108 opens.
UPDATE deliveries SET sealed_content = old.content
FROM unnest(%(delivery_keys)b::bytea[], %(contents)b::bytea[]) AS old (delivery_key, content)
WHERE deliveries.delivery_key = old.delivery_key

-- name: correct
-- The week may have turned since the admission: the row is found by its id, and none is added.
UPDATE admitted_requests AS stored SET succeeded = corrected.succeeded
FROM (
    SELECT admitted.message_id, admitted.week, new.succeeded
    FROM unnest(%(message_ids)b::bytea[], %(succeeded)b::text[]) AS new (message_id, succeeded)
    JOIN admitted_requests AS admitted USING (message_id)
    ORDER BY message_id, week
    FOR UPDATE OF admitted
) AS corrected
WHERE stored.message_id = corrected.message_id AND stored.week = corrected.week

-- name: remember_over
-- Nothing is pushed or answered for them any more. What was admitted stays as it is.
INSERT INTO admitted_requests (message_id, succeeded, expired)
SELECT message_id, '', true FROM unnest(%(message_ids)b::bytea[]) AS new (message_id)
WHERE NOT EXISTS (SELECT FROM admitted_requests AS stored WHERE stored.message_id = new.message_id)
ORDER BY message_id
ON CONFLICT (message_id, week) DO NOTHING
