-- name: stored
SELECT key_hash, installation_hash, version, request_digest, registered
FROM registrations
JOIN unnest(%(key_hashes)s::bytea[], %(installation_hashes)s::bytea[]) AS wanted (key, installation)
    ON key_hash = wanted.key AND installation_hash = wanted.installation

-- name: installations
SELECT key_hash, count(*) FROM registrations
WHERE key_hash = ANY (%(key_hashes)s) AND registered
GROUP BY key_hash

-- name: put
INSERT INTO registrations AS stored (
    key_hash, installation_hash, version, request_digest, registered, installation_id, token_type, device_token,
    access_token, "grant", enabled, apn_topic, allow_from_contacts_only, block_mentions, allowed_key_list,
    blocked_chat_list, muted_chat_list, allowed_mentions_chat_list
)
SELECT
    key_hash, installation_hash, version, request_digest, true, installation_id, token_type, device_token,
    access_token, "grant", enabled, apn_topic, allow_from_contacts_only, block_mentions, allowed_key_list::bytea[],
    blocked_chat_list::bytea[], muted_chat_list::bytea[], allowed_mentions_chat_list::bytea[]
FROM unnest(
    %(key_hash)s::bytea[], %(installation_hash)s::bytea[], %(version)s::numeric[], %(request_digest)s::bytea[],
    %(installation_id)s::text[], %(token_type)s::smallint[], %(device_token)s::text[], %(access_token)s::text[],
    %(grant)s::bytea[], %(enabled)s::boolean[], %(apn_topic)s::text[], %(allow_from_contacts_only)s::boolean[],
    %(block_mentions)s::boolean[], %(allowed_key_list)s::text[], %(blocked_chat_list)s::text[],
    %(muted_chat_list)s::text[], %(allowed_mentions_chat_list)s::text[]
) AS new (
    key_hash, installation_hash, version, request_digest, installation_id, token_type, device_token, access_token,
    "grant", enabled, apn_topic, allow_from_contacts_only, block_mentions, allowed_key_list, blocked_chat_list,
    muted_chat_list, allowed_mentions_chat_list
)
ORDER BY key_hash, installation_hash
ON CONFLICT (key_hash, installation_hash) DO UPDATE SET
    version = excluded.version,
    request_digest = excluded.request_digest,
    registered = true,
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
    token_died_at = NULL
WHERE stored.version < excluded.version

-- name: unregister
INSERT INTO registrations AS stored (key_hash, installation_hash, version, request_digest, registered)
SELECT key_hash, installation_hash, version, request_digest, false
FROM unnest(
    %(key_hash)s::bytea[], %(installation_hash)s::bytea[], %(version)s::numeric[], %(request_digest)s::bytea[]
) AS new (key_hash, installation_hash, version, request_digest)
ORDER BY key_hash, installation_hash
ON CONFLICT (key_hash, installation_hash) DO UPDATE SET
    version = excluded.version,
    request_digest = excluded.request_digest,
    registered = false,
    installation_id = NULL,
    token_type = NULL,
    device_token = NULL,
    access_token = NULL,
    "grant" = NULL,
    enabled = NULL,
    apn_topic = NULL,
    allow_from_contacts_only = NULL,
    block_mentions = NULL,
    allowed_key_list = NULL,
    blocked_chat_list = NULL,
    muted_chat_list = NULL,
    allowed_mentions_chat_list = NULL,
    token_died_at = NULL
WHERE stored.version < excluded.version

-- name: forget_deliveries
DELETE FROM deliveries USING unnest(%(key_hash)s::bytea[], %(installation_hash)s::bytea[]) AS gone (key, installation)
WHERE key_hash = gone.key AND installation_hash = gone.installation

-- name: forget_quarantine
DELETE FROM quarantine USING unnest(%(key_hash)s::bytea[], %(installation_hash)s::bytea[]) AS gone (key, installation)
WHERE key_hash = gone.key AND installation_hash = gone.installation

-- name: devices
SELECT key_hash, installation_id, version, access_token, "grant", allow_from_contacts_only, allowed_key_list
FROM registrations
WHERE key_hash = ANY (%(key_hashes)s) AND registered
ORDER BY key_hash, installation_id

-- name: preferences
SELECT key_hash, installation_hash, token_type, access_token, enabled, token_died_at IS NOT NULL AS token_died,
    block_mentions, blocked_chat_list, muted_chat_list, allowed_mentions_chat_list
FROM registrations
JOIN unnest(%(key_hashes)s::bytea[], %(installation_hashes)s::bytea[]) AS wanted (key, installation)
    ON key_hash = wanted.key AND installation_hash = wanted.installation
WHERE registered

-- name: targets
SELECT key_hash, installation_hash, version, installation_id, token_type, device_token, apn_topic
FROM registrations
JOIN unnest(%(key_hashes)s::bytea[], %(installation_hashes)s::bytea[]) AS wanted (key, installation)
    ON key_hash = wanted.key AND installation_hash = wanted.installation
WHERE registered AND enabled AND token_died_at IS NULL

-- name: token_died
UPDATE registrations SET token_died_at = now()
WHERE key_hash = %(key_hash)s AND installation_hash = %(installation_hash)s AND version = %(version)s
    AND registered AND token_died_at IS NULL
