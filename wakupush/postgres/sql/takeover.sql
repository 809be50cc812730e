-- name: rows_of
SELECT key_hash, installation_hash, version, request_digest, registered,
    token_type, enabled, allow_from_contacts_only, block_mentions, sealed_device, sealed_allowed_key_list,
    blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests
FROM registrations
JOIN unnest(%(key_hashes)b::bytea[], %(installation_hashes)b::bytea[]) AS wanted (key, installation)
    ON key_hash = wanted.key AND installation_hash = wanted.installation

-- name: every
SELECT key_hash, installation_hash, version, request_digest, registered,
    token_type, enabled, allow_from_contacts_only, block_mentions, sealed_device, sealed_allowed_key_list,
    blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests
FROM registrations
ORDER BY key_hash, installation_hash

-- name: count
SELECT (SELECT count(*) FROM registrations), (SELECT count(*) FROM admitted_requests)

-- name: requests
SELECT message_id FROM admitted_requests

-- name: known_requests
SELECT count(DISTINCT message_id) FROM admitted_requests WHERE message_id = ANY (%(message_ids)b)
