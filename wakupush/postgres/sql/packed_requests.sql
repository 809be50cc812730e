-- name: lock
SELECT pg_try_advisory_xact_lock(%(lock)s)

-- name: due
SELECT EXISTS (SELECT FROM admitted_requests WHERE admitted_at < now() - %(keep)s * interval '1 second')

-- name: until
-- The oldest ids of one month, so many at most: their month, the time of the last one, and their number.
SELECT date_trunc('month', min(admitted_at) AT TIME ZONE 'UTC')::date, max(admitted_at), count(*)
FROM (
    SELECT admitted_at FROM admitted_requests
    WHERE admitted_at < now() - %(keep)s * interval '1 second'
        AND admitted_at < (
            SELECT date_trunc('month', min(admitted_at), 'UTC') + interval '1 month' FROM admitted_requests
        )
    ORDER BY admitted_at LIMIT %(most)s
) AS oldest

-- name: ids
SELECT message_id FROM admitted_requests WHERE admitted_at <= %(until)s

-- name: remove
DELETE FROM admitted_requests WHERE admitted_at <= %(until)s

-- name: months
SELECT month, prefix_bits FROM packed_months ORDER BY month

-- name: begin_month
INSERT INTO packed_months (month, prefix_bits) VALUES (%(month)s, %(prefix_bits)s)

-- name: read
SELECT prefix, digests FROM packed_requests WHERE month = %(month)s AND prefix = ANY (%(prefixes)s)

-- name: write
INSERT INTO packed_requests (month, prefix, digests)
SELECT %(month)s, prefix, digests
FROM unnest(%(prefixes)s::integer[], %(digests)b::bytea[]) AS new (prefix, digests)
ON CONFLICT (month, prefix) DO UPDATE SET digests = excluded.digests

-- name: find
SELECT wanted.position, position(wanted.digest IN digests)
FROM unnest(%(months)s::date[], %(prefixes)s::integer[], %(digests)b::bytea[]) WITH ORDINALITY
    AS wanted (month, prefix, digest, position)
JOIN packed_requests ON packed_requests.month = wanted.month AND packed_requests.prefix = wanted.prefix
WHERE position(wanted.digest IN digests) > 0

-- name: forget_months
DELETE FROM packed_months WHERE month < %(before)s RETURNING month

-- name: forget_digests
DELETE FROM packed_requests WHERE month < %(before)s
