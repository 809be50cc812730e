-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended('segments', key)) FROM unnest(%(keys)s::bigint[]) AS key

-- name: trim
-- The newest that fit stay, of each signer and of everybody.
DELETE FROM message_segments WHERE (signer, entire_message_hash, index) IN (
    SELECT kept.signer, kept.entire_message_hash, kept.index
    FROM message_segments AS kept JOIN (
        SELECT signer, entire_message_hash, index,
            row_number() OVER own AS own_parts, sum(octet_length(payload)) OVER own AS own_size,
            row_number() OVER everybody AS parts, sum(octet_length(payload)) OVER everybody AS size
        FROM message_segments
        WINDOW
            own AS (PARTITION BY signer ORDER BY received_at DESC, entire_message_hash, index ROWS UNBOUNDED PRECEDING),
            everybody AS (ORDER BY received_at DESC, signer, entire_message_hash, index ROWS UNBOUNDED PRECEDING)
    ) AS ranked USING (signer, entire_message_hash, index)
    WHERE own_parts > %(parts_per_signer)s OR own_size > %(bytes_per_signer)s
        OR parts > %(parts)s OR size > %(bytes)s
    FOR UPDATE OF kept SKIP LOCKED
)

-- name: add
INSERT INTO message_segments (signer, entire_message_hash, index, payload)
VALUES (%(signer)s, %(hash)s, %(index)s, %(payload)s)
ON CONFLICT DO NOTHING

-- name: parts
SELECT index, payload FROM message_segments WHERE signer = %(signer)s AND entire_message_hash = %(hash)s

-- name: kept
SELECT count(*), sum(octet_length(payload))::bigint FROM message_segments
WHERE signer = %(signer)s AND entire_message_hash = %(hash)s

-- name: remove
DELETE FROM message_segments WHERE signer = %(signer)s AND entire_message_hash = %(hash)s

-- name: expire
DELETE FROM message_segments WHERE received_at < now() - %(keep)s * interval '1 second'
