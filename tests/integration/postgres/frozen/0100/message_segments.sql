-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended('segments', key)) FROM unnest(%(keys)s::bigint[]) AS key

-- name: kept
SELECT kept.signer, kept.entire_message_hash, array_agg(kept.index), sum(octet_length(kept.payload))::bigint
FROM message_segments AS kept
JOIN unnest(%(signer)b::bytea[], %(hash)b::bytea[]) AS wanted (signer, hash)
    ON kept.signer = wanted.signer AND kept.entire_message_hash = wanted.hash
GROUP BY kept.signer, kept.entire_message_hash

-- name: parts
SELECT kept.signer, kept.entire_message_hash, kept.index, kept.payload
FROM message_segments AS kept
JOIN unnest(%(signer)b::bytea[], %(hash)b::bytea[]) AS wanted (signer, hash)
    ON kept.signer = wanted.signer AND kept.entire_message_hash = wanted.hash

-- name: forget
DELETE FROM message_segments USING unnest(%(signer)b::bytea[], %(hash)b::bytea[]) AS gone (of_signer, hash)
WHERE signer = gone.of_signer AND entire_message_hash = gone.hash

-- name: keep
INSERT INTO message_segments (signer, entire_message_hash, index, payload)
SELECT * FROM unnest(%(signer)b::bytea[], %(hash)b::bytea[], %(index)s::int[], %(payload)b::bytea[])
ON CONFLICT DO NOTHING

-- name: trim
-- The newest that fit stay, of each of these signers.
DELETE FROM message_segments WHERE (signer, entire_message_hash, index) IN (
    SELECT kept.signer, kept.entire_message_hash, kept.index
    FROM message_segments AS kept JOIN (
        SELECT signer, entire_message_hash, index,
            row_number() OVER newest AS parts, sum(octet_length(payload)) OVER newest AS size
        FROM message_segments WHERE signer = ANY (%(signers)b)
        WINDOW newest AS (
            PARTITION BY signer ORDER BY received_at DESC, entire_message_hash, index ROWS UNBOUNDED PRECEDING
        )
    ) AS ranked USING (signer, entire_message_hash, index)
    WHERE parts > %(parts)s OR size > %(bytes)s
    FOR UPDATE OF kept SKIP LOCKED
)

-- name: trim_all
-- The newest that fit stay, of everybody.
DELETE FROM message_segments WHERE (signer, entire_message_hash, index) IN (
    SELECT kept.signer, kept.entire_message_hash, kept.index
    FROM message_segments AS kept JOIN (
        SELECT signer, entire_message_hash, index,
            row_number() OVER newest AS parts, sum(octet_length(payload)) OVER newest AS size
        FROM message_segments
        WINDOW newest AS (ORDER BY received_at DESC, signer, entire_message_hash, index ROWS UNBOUNDED PRECEDING)
    ) AS ranked USING (signer, entire_message_hash, index)
    WHERE parts > %(parts)s OR size > %(bytes)s
    FOR UPDATE OF kept SKIP LOCKED
)

-- name: expire
DELETE FROM message_segments WHERE received_at < now() - %(keep)s * interval '1 second'
