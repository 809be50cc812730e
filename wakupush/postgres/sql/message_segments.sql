-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended('segments', key)) FROM unnest(%(keys)b::bigint[]) AS key

-- name: try_lock
SELECT key FROM unnest(%(keys)b::bigint[]) AS key WHERE pg_try_advisory_xact_lock(hashtextextended('segments', key))

-- name: stored
SELECT part.signer, part.entire_message_hash, array_agg(part.index), sum(octet_length(part.payload))::bigint
FROM message_segments AS part
JOIN unnest(%(signer)b::bytea[], %(hash)b::bytea[]) AS wanted (signer, hash)
    ON part.signer = wanted.signer AND part.entire_message_hash = wanted.hash
GROUP BY part.signer, part.entire_message_hash

-- name: parts
SELECT part.signer, part.entire_message_hash, part.index, part.payload
FROM message_segments AS part
JOIN unnest(%(signer)b::bytea[], %(hash)b::bytea[]) AS wanted (signer, hash)
    ON part.signer = wanted.signer AND part.entire_message_hash = wanted.hash

-- name: forget
DELETE FROM message_segments USING unnest(%(signer)b::bytea[], %(hash)b::bytea[]) AS gone (of_signer, hash)
WHERE signer = gone.of_signer AND entire_message_hash = gone.hash

-- name: keep
-- The form that older code opens, while it may run.
INSERT INTO message_segments (signer, entire_message_hash, index, payload)
SELECT signer, hash, index,
    CASE WHEN EXISTS (SELECT FROM schema_migrations WHERE name = '0108_post_seals') THEN payload ELSE old_payload END
FROM unnest(
    %(signer)b::bytea[], %(hash)b::bytea[], %(index)b::int[], %(payload)b::bytea[], %(old_payload)b::bytea[]
) AS new (signer, hash, index, payload, old_payload)
ON CONFLICT DO NOTHING

-- name: trim
-- The newest that fit stay, of each of these signers.
DELETE FROM message_segments WHERE (signer, entire_message_hash, index) IN (
    SELECT part.signer, part.entire_message_hash, part.index
    FROM message_segments AS part JOIN (
        SELECT signer, entire_message_hash, index,
            row_number() OVER newest AS parts, sum(octet_length(payload)) OVER newest AS size
        FROM message_segments WHERE signer = ANY (%(signers)b)
        WINDOW newest AS (
            PARTITION BY signer ORDER BY received_at DESC, entire_message_hash, index ROWS UNBOUNDED PRECEDING
        )
    ) AS ranked USING (signer, entire_message_hash, index)
    WHERE parts > %(parts)s OR size > %(bytes)s
    FOR UPDATE OF part SKIP LOCKED
)

-- name: trim_all
-- Chance decides which messages stay whole: an order by age would let the quickest sender shut out all others, and parts
-- of a message are of no use without the others.
DELETE FROM message_segments WHERE (signer, entire_message_hash, index) IN (
    SELECT part.signer, part.entire_message_hash, part.index
    FROM message_segments AS part JOIN (
        SELECT signer, entire_message_hash, sum(parts) OVER drawn AS parts, sum(size) OVER drawn AS size
        FROM (
            SELECT signer, entire_message_hash, count(*) AS parts, sum(octet_length(payload)) AS size, random() AS draw
            FROM message_segments GROUP BY signer, entire_message_hash
        ) AS messages
        WINDOW drawn AS (ORDER BY draw, signer, entire_message_hash ROWS UNBOUNDED PRECEDING)
    ) AS ranked USING (signer, entire_message_hash)
    WHERE ranked.parts > %(parts)s OR ranked.size > %(bytes)s
    FOR UPDATE OF part SKIP LOCKED
)

-- name: expire
DELETE FROM message_segments WHERE received_at < now() - %(keep)s * interval '1 second'
