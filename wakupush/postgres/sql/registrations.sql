-- name: stored
SELECT key_hash, installation_hash, version, request_digest, registered, token_died_at IS NOT NULL
FROM registrations
JOIN unnest(%(key_hashes)b::bytea[], %(installation_hashes)b::bytea[]) AS wanted (key, installation)
    ON key_hash = wanted.key AND installation_hash = wanted.installation

-- name: installations
SELECT key_hash, count(*), bool_or(proven) FROM registrations
WHERE key_hash = ANY (%(key_hashes)b) AND registered
GROUP BY key_hash

-- name: put
INSERT INTO registrations AS stored (
    key_hash, installation_hash, app, server_key, version, request_digest, token_type, enabled,
    allow_from_contacts_only, block_mentions, sealed_device, sealed_allowed_key_list, access_token_digest,
    blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests, device_digest, registered
)
SELECT new.*, true
FROM unnest(
    %(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(app)b::text[], %(server_key)b::bytea[],
    %(version)b::numeric[], %(request_digest)b::bytea[], %(token_type)b::smallint[], %(enabled)b::boolean[], %(allow_from_contacts_only)b::boolean[],
    %(block_mentions)b::boolean[], %(sealed_device)b::bytea[], %(sealed_allowed_key_list)b::bytea[],
    %(access_token_digest)b::bytea[], %(blocked_chat_digests)b::bytea[], %(muted_chat_digests)b::bytea[],
    %(allowed_mentions_chat_digests)b::bytea[], %(device_digest)b::bytea[]
) AS new (key_hash, installation_hash)
ORDER BY key_hash, installation_hash
ON CONFLICT (key_hash, installation_hash) DO UPDATE SET
    app = excluded.app,
    server_key = excluded.server_key,
    version = excluded.version,
    request_digest = excluded.request_digest,
    registered = true,
    token_type = excluded.token_type,
    enabled = excluded.enabled,
    allow_from_contacts_only = excluded.allow_from_contacts_only,
    block_mentions = excluded.block_mentions,
    sealed_device = excluded.sealed_device,
    sealed_allowed_key_list = excluded.sealed_allowed_key_list,
    access_token_digest = excluded.access_token_digest,
    blocked_chat_digests = excluded.blocked_chat_digests,
    muted_chat_digests = excluded.muted_chat_digests,
    allowed_mentions_chat_digests = excluded.allowed_mentions_chat_digests,
    device_digest = excluded.device_digest,
    token_died_at = NULL,
    suspected_at = NULL,
    -- That a push reached a device stays true of the same one.
    proven = stored.registered AND stored.proven IS TRUE AND stored.token_died_at IS NULL
        AND stored.app = excluded.app AND stored.device_digest IS NOT DISTINCT FROM excluded.device_digest
WHERE stored.version < excluded.version

-- name: unregister
INSERT INTO registrations AS stored (key_hash, installation_hash, version, request_digest, registered, proven)
SELECT new.*, false, NULL
FROM unnest(
    %(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(version)b::numeric[], %(request_digest)b::bytea[]
) AS new (key_hash, installation_hash)
ORDER BY key_hash, installation_hash
ON CONFLICT (key_hash, installation_hash) DO UPDATE SET
    version = excluded.version,
    request_digest = excluded.request_digest,
    registered = false,
    app = '',
    server_key = NULL,
    token_type = NULL,
    enabled = NULL,
    allow_from_contacts_only = NULL,
    block_mentions = NULL,
    sealed_device = NULL,
    sealed_allowed_key_list = NULL,
    access_token_digest = NULL,
    blocked_chat_digests = NULL,
    muted_chat_digests = NULL,
    allowed_mentions_chat_digests = NULL,
    token_died_at = NULL,
    device_digest = NULL,
    suspected_at = NULL,
    proven = NULL
WHERE stored.version < excluded.version

-- name: unregister_dead
WITH dead AS (
    SELECT key_hash, installation_hash FROM registrations
    WHERE token_died_at < now() - %(seconds)s * interval '1 second'
    LIMIT %(most)s FOR UPDATE SKIP LOCKED
), unregistered AS (
    UPDATE registrations AS stored SET
        request_digest = '',
        registered = false,
        app = '',
        server_key = NULL,
        token_type = NULL,
        enabled = NULL,
        allow_from_contacts_only = NULL,
        block_mentions = NULL,
        sealed_device = NULL,
        sealed_allowed_key_list = NULL,
        access_token_digest = NULL,
        blocked_chat_digests = NULL,
        muted_chat_digests = NULL,
        allowed_mentions_chat_digests = NULL,
        device_digest = NULL,
        token_died_at = NULL,
        suspected_at = NULL
    FROM dead WHERE stored.key_hash = dead.key_hash AND stored.installation_hash = dead.installation_hash
), gone AS MATERIALIZED (
    SELECT delivery_key FROM deliveries JOIN dead USING (key_hash, installation_hash)
    ORDER BY delivery_key FOR UPDATE OF deliveries
), forgotten_deliveries AS (
    DELETE FROM deliveries WHERE delivery_key = ANY (ARRAY(TABLE gone))
), forgotten_quarantine AS (
    DELETE FROM quarantine USING dead
    WHERE quarantine.key_hash = dead.key_hash AND quarantine.installation_hash = dead.installation_hash
)
SELECT count(*) FROM dead

-- name: forget_deliveries
WITH gone AS MATERIALIZED (
    SELECT delivery_key FROM deliveries
    JOIN unnest(%(key_hash)b::bytea[], %(installation_hash)b::bytea[]) AS gone (key, installation)
        ON key_hash = gone.key AND installation_hash = gone.installation
    ORDER BY delivery_key FOR UPDATE OF deliveries
)
DELETE FROM deliveries WHERE delivery_key = ANY (ARRAY(TABLE gone))

-- name: lock
SELECT FROM registrations
JOIN unnest(%(key_hashes)b::bytea[], %(installation_hashes)b::bytea[]) AS wanted (key, installation)
    ON key_hash = wanted.key AND installation_hash = wanted.installation
ORDER BY key_hash, installation_hash FOR NO KEY UPDATE OF registrations

-- name: forget_quarantine
DELETE FROM quarantine USING unnest(%(key_hash)b::bytea[], %(installation_hash)b::bytea[]) AS gone (key, installation)
WHERE key_hash = gone.key AND installation_hash = gone.installation

-- name: answer_bytes
-- A device takes at most 256 bytes without its list. The sealed list is no shorter than its protobuf, and its length is
-- known without reading it.
SELECT key_hash, sum(256 + CASE
    WHEN allow_from_contacts_only THEN coalesce(octet_length(sealed_allowed_key_list), 0) ELSE 0
END), bool_or(proven)
FROM registrations
WHERE key_hash = ANY (%(key_hashes)b) AND registered AND token_died_at IS NULL
GROUP BY key_hash

-- name: devices
SELECT key_hash, installation_hash, server_key, version, allow_from_contacts_only, sealed_device,
    CASE WHEN allow_from_contacts_only THEN sealed_allowed_key_list END
FROM registrations
WHERE key_hash = ANY (%(key_hashes)b) AND registered AND token_died_at IS NULL

-- name: server_keys
SELECT server_key, count(*) FROM registrations WHERE registered GROUP BY server_key

-- name: token_died
UPDATE registrations SET token_died_at = now(), suspected_at = NULL
FROM unnest(%(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(version)b::numeric[])
    AS dead (key, installation, tried)
WHERE key_hash = dead.key AND installation_hash = dead.installation AND version = dead.tried
    AND registered AND token_died_at IS NULL
RETURNING key_hash, installation_hash

-- name: suspect
-- A token that no push ever reached is doubted only while the platform takes others: else it may be the server's setup.
UPDATE registrations SET suspected_at = ARRAY(
    SELECT at FROM unnest(suspected_at || array_fill(now(), ARRAY[doubted.times])) AS at
    WHERE at > now() - %(seconds)s * interval '1 second'
)
FROM unnest(%(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(version)b::numeric[], %(app)b::text[], %(times)b::int[])
    AS doubted (key, installation, of_version, of_app, times)
WHERE key_hash = doubted.key AND installation_hash = doubted.installation AND version = doubted.of_version
    AND registered AND token_died_at IS NULL
    AND (proven OR EXISTS (
        SELECT FROM app_token_trials
        WHERE app_token_trials.app = doubted.of_app AND platform = token_type AND tried > bad
    ))
RETURNING key_hash, installation_hash, cardinality(suspected_at)

-- name: prove
UPDATE registrations SET suspected_at = NULL, proven = true
FROM unnest(%(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(version)b::numeric[])
    AS proven (key, installation, tried)
WHERE key_hash = proven.key AND installation_hash = proven.installation AND version = proven.tried
    AND (suspected_at IS NOT NULL OR proven IS NOT TRUE)
