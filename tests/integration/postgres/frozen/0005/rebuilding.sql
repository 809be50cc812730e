-- name: stage
CREATE TEMPORARY TABLE rebuilt (LIKE registrations) ON COMMIT DROP

-- name: copy
COPY rebuilt (
    key_hash, installation_hash, version, request_digest, registered, installation_id, token_type, device_token,
    access_token, "grant", enabled, apn_topic, allow_from_contacts_only, block_mentions, allowed_key_list,
    blocked_chat_list, muted_chat_list, allowed_mentions_chat_list
) FROM STDIN

-- name: merge
WITH newer AS (
    INSERT INTO registrations AS stored (
        key_hash, installation_hash, version, request_digest, registered, installation_id, token_type, device_token,
        access_token, "grant", enabled, apn_topic, allow_from_contacts_only, block_mentions, allowed_key_list,
        blocked_chat_list, muted_chat_list, allowed_mentions_chat_list
    )
    SELECT
        key_hash, installation_hash, version, request_digest, registered, installation_id, token_type, device_token,
        access_token, "grant", enabled, apn_topic, allow_from_contacts_only, block_mentions, allowed_key_list,
        blocked_chat_list, muted_chat_list, allowed_mentions_chat_list
    FROM rebuilt
    ORDER BY key_hash, installation_hash
    ON CONFLICT (key_hash, installation_hash) DO UPDATE SET
        version = excluded.version,
        request_digest = excluded.request_digest,
        registered = excluded.registered,
        installation_id = excluded.installation_id,
        token_type = excluded.token_type,
        device_token = excluded.device_token,
        access_token = excluded.access_token,
        "grant" = excluded."grant",
        enabled = excluded.enabled,
        apn_topic = excluded.apn_topic,
        allow_from_contacts_only = excluded.allow_from_contacts_only,
        block_mentions = excluded.block_mentions,
        allowed_key_list = excluded.allowed_key_list,
        blocked_chat_list = excluded.blocked_chat_list,
        muted_chat_list = excluded.muted_chat_list,
        allowed_mentions_chat_list = excluded.allowed_mentions_chat_list,
        token_died_at = NULL,
        suspected_at = NULL
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
