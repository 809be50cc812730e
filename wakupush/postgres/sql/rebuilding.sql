-- name: stage
CREATE TEMPORARY TABLE rebuilt ON COMMIT DROP AS
SELECT
    key_hash, installation_hash, app, server_key, version, request_digest, registered, token_type, enabled,
    allow_from_contacts_only, block_mentions, sealed_device, sealed_allowed_key_list, access_token_digest,
    blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests
FROM registrations
WITH NO DATA

-- name: copy
COPY rebuilt FROM STDIN

-- name: merge
WITH newer AS (
    INSERT INTO registrations AS stored (
        key_hash, installation_hash, app, server_key, version, request_digest, registered, token_type, enabled,
        allow_from_contacts_only, block_mentions, sealed_device, sealed_allowed_key_list, access_token_digest,
        blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests
    )
    SELECT * FROM rebuilt
    ORDER BY key_hash, installation_hash
    ON CONFLICT (key_hash, installation_hash) DO UPDATE SET
        app = excluded.app,
        server_key = excluded.server_key,
        version = excluded.version,
        request_digest = excluded.request_digest,
        registered = excluded.registered,
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
        device_digest = NULL,
        token_died_at = NULL,
        suspected_at = NULL,
        proven = CASE WHEN excluded.registered THEN false END
    WHERE stored.version < excluded.version
    RETURNING key_hash, installation_hash, registered
), forgotten_deliveries AS (
    DELETE FROM deliveries USING newer
    WHERE NOT newer.registered AND deliveries.key_hash = newer.key_hash
        AND deliveries.installation_hash = newer.installation_hash
), forgotten_quarantine AS (
    DELETE FROM quarantine USING newer
    WHERE NOT newer.registered AND quarantine.key_hash = newer.key_hash
        AND quarantine.installation_hash = newer.installation_hash
)
SELECT count(*) FROM newer
