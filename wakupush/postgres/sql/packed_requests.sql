-- name: months
SELECT month, prefix_bits FROM packed_months ORDER BY month

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
