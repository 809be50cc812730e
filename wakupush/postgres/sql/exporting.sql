-- name: mark
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    (SELECT system_identifier::text FROM pg_control_system()),
    (SELECT timeline_id FROM pg_control_checkpoint())

-- name: lock
SELECT pg_try_advisory_lock(%(lock)s::bigint)

-- name: count
SELECT count(*)
FROM delivery_history
WHERE transaction_id >= %(start)s::text::xid8 AND transaction_id < %(end)s::text::xid8

-- name: slices
SELECT max(transaction_id)::text::bigint + 1
FROM (
    SELECT transaction_id, ntile(%(slices)s) OVER (ORDER BY transaction_id) AS slice
    FROM (
        SELECT transaction_id
        FROM delivery_history
        WHERE transaction_id >= %(start)s::text::xid8 AND transaction_id < %(end)s::text::xid8
        ORDER BY transaction_id
        LIMIT %(rows)s
    ) AS step
) AS sliced
GROUP BY slice
ORDER BY 1

-- name: extent
SELECT array_agg(DISTINCT (time AT TIME ZONE 'UTC')::date), max(schema_version), count(*)
FROM delivery_history
WHERE transaction_id >= %(start)s::text::xid8 AND transaction_id < %(end)s::text::xid8

-- name: last_event
SELECT max(time)
FROM delivery_history
WHERE transaction_id = %(transaction)s::text::xid8

-- name: note_exported
INSERT INTO event_export (transaction_id) VALUES (%(transaction)s::text::xid8)
ON CONFLICT (is_only) DO UPDATE SET transaction_id = excluded.transaction_id, exported_at = now()

-- name: others_than
SELECT EXISTS (SELECT FROM delivery_history WHERE worker <> %(worker)s)

-- name: note_run
INSERT INTO pipeline_runs (job, seconds) VALUES (%(job)s, %(seconds)s)
ON CONFLICT (job) DO UPDATE SET ended_at = now(), seconds = excluded.seconds
