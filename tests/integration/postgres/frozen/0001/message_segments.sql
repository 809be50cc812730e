-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended('segments', key)) FROM unnest(%(keys)s::bigint[]) AS key

-- name: usage
SELECT count(*), COALESCE(sum(octet_length(payload)), 0)::bigint,
    count(*) FILTER (WHERE signer = %(signer)s),
    COALESCE(sum(octet_length(payload)) FILTER (WHERE signer = %(signer)s), 0)::bigint
FROM message_segments

-- name: add
INSERT INTO message_segments (signer, entire_message_hash, index, payload)
VALUES (%(signer)s, %(hash)s, %(index)s, %(payload)s)
ON CONFLICT DO NOTHING

-- name: parts
SELECT index, payload FROM message_segments WHERE signer = %(signer)s AND entire_message_hash = %(hash)s

-- name: is_kept
SELECT FROM message_segments WHERE signer = %(signer)s AND entire_message_hash = %(hash)s AND index = %(index)s

-- name: count
SELECT count(*) FROM message_segments WHERE signer = %(signer)s AND entire_message_hash = %(hash)s

-- name: remove
DELETE FROM message_segments WHERE signer = %(signer)s AND entire_message_hash = %(hash)s

-- name: expire
DELETE FROM message_segments WHERE received_at < now() - %(keep)s * interval '1 second'
