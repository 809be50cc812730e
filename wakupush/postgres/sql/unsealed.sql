-- name: registrations
SELECT key_hash, installation_hash, version, installation_id, token_type, device_token, access_token, "grant", enabled,
    apn_topic, allow_from_contacts_only, block_mentions, allowed_key_list, blocked_chat_list, muted_chat_list,
    allowed_mentions_chat_list
FROM registrations
JOIN unnest(%(key_hashes)b::bytea[], %(installation_hashes)b::bytea[]) AS wanted (key, installation)
    ON key_hash = wanted.key AND installation_hash = wanted.installation
WHERE registered AND installation_id IS NOT NULL

-- name: any
SELECT EXISTS (
    SELECT FROM registrations WHERE sealed_version IS DISTINCT FROM version OR installation_id IS NOT NULL
) OR EXISTS (SELECT FROM deliveries WHERE message IS NOT NULL)

-- name: claim_registrations
SELECT key_hash, installation_hash FROM registrations
WHERE sealed_version IS DISTINCT FROM version OR installation_id IS NOT NULL
ORDER BY key_hash, installation_hash LIMIT %(most)s FOR UPDATE SKIP LOCKED

-- name: seal_registrations
UPDATE registrations SET
    sealed_version = version,
    sealed_device = new.sealed_device,
    sealed_allowed_key_list = new.sealed_allowed_key_list,
    access_token_digest = new.access_token_digest,
    access_token_since = CASE WHEN registered THEN access_token_since END,
    blocked_chat_digests = new.blocked_chat_digests,
    muted_chat_digests = new.muted_chat_digests,
    allowed_mentions_chat_digests = new.allowed_mentions_chat_digests,
    installation_id = NULL,
    device_token = NULL,
    access_token = NULL,
    "grant" = NULL,
    apn_topic = NULL,
    allowed_key_list = NULL,
    blocked_chat_list = NULL,
    muted_chat_list = NULL,
    allowed_mentions_chat_list = NULL
FROM unnest(
    %(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(sealed_device)b::bytea[],
    %(sealed_allowed_key_list)b::bytea[], %(access_token_digest)b::bytea[], %(blocked_chat_digests)b::bytea[],
    %(muted_chat_digests)b::bytea[], %(allowed_mentions_chat_digests)b::bytea[]
) AS new (
    key, installation, sealed_device, sealed_allowed_key_list, access_token_digest, blocked_chat_digests,
    muted_chat_digests, allowed_mentions_chat_digests
)
WHERE key_hash = new.key AND installation_hash = new.installation

-- name: claim_deliveries
SELECT delivery_key, chat_id, message FROM deliveries
WHERE message IS NOT NULL
ORDER BY delivery_key LIMIT %(most)s FOR UPDATE SKIP LOCKED

-- name: seal_deliveries
UPDATE deliveries SET sealed_content = new.sealed_content, chat_id = NULL, message = NULL
FROM unnest(%(delivery_key)b::bytea[], %(sealed_content)b::bytea[]) AS new (delivery_key, sealed_content)
WHERE deliveries.delivery_key = new.delivery_key
