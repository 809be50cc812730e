-- name: mark
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, (SELECT system_identifier::text FROM pg_control_system())

-- name: count
SELECT count(*)
FROM delivery_events
WHERE transaction_id >= %(start)s::text::xid8 AND transaction_id < %(end)s::text::xid8

-- name: slices
SELECT max(transaction_id)::text::bigint + 1
FROM (
    SELECT transaction_id, ntile(%(slices)s) OVER (ORDER BY transaction_id) AS slice
    FROM (
        SELECT transaction_id
        FROM delivery_events
        WHERE transaction_id >= %(start)s::text::xid8 AND transaction_id < %(end)s::text::xid8
        ORDER BY transaction_id
        LIMIT %(rows)s
    ) AS step
) AS sliced
GROUP BY slice
ORDER BY 1

-- name: extent
SELECT array_agg(DISTINCT (time AT TIME ZONE 'UTC')::date), max(schema_version), count(*)
FROM delivery_events
WHERE transaction_id >= %(start)s::text::xid8 AND transaction_id < %(end)s::text::xid8

-- name: last_event
SELECT max(time)
FROM delivery_events
WHERE transaction_id = %(transaction)s::text::xid8

-- name: others_than
SELECT EXISTS (SELECT FROM delivery_events WHERE worker <> %(worker)s)
