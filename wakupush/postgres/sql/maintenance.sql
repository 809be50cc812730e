-- name: partitions
SELECT relname FROM pg_class
JOIN pg_inherits ON inhrelid = pg_class.oid
WHERE inhparent = %(table)s::regclass
ORDER BY relname

-- name: exists
SELECT to_regclass(%(name)s) IS NOT NULL

-- name: create_partition
SELECT create_partition(%(table)s::text, %(day)s::date, %(step)s::text)

-- name: drop_partition
SELECT drop_partition(%(table)s::text, %(day)s::date, %(keep)s::float8)

-- name: sort_rows
SELECT sort_rows(%(table)s::text, %(start)b::bytea, %(most)s::integer)

-- name: ledger_default
DELETE FROM ledger_default WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ledger_default WHERE received_at < now() - %(keep)s * interval '1 second'
    ORDER BY received_at LIMIT %(most)s
))

-- name: export_is_known
SELECT EXISTS (SELECT FROM event_export)

-- name: event_bytes
SELECT COALESCE(sum(pg_total_relation_size(inhrelid)), 0)::bigint
FROM pg_inherits WHERE inhparent = 'delivery_events'::regclass

-- name: drop_events
SELECT drop_events(%(day)s::date, %(keep)s::float8, %(keep_missing)s::float8)

-- name: delivery_events_default
DELETE FROM delivery_events_default WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM delivery_events_default
    WHERE time < now() - %(keep)s * interval '1 second' AND (
        time < now() - %(keep_missing)s * interval '1 second'
        OR transaction_id < (SELECT transaction_id FROM event_export)
    )
    ORDER BY time LIMIT %(most)s
))

-- name: event_export
DELETE FROM event_export WHERE exported_at < now() - %(keep)s * interval '1 second'

-- name: admitted_requests_default
DELETE FROM admitted_requests_default WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM admitted_requests_default
    WHERE week < now() AT TIME ZONE 'UTC' - interval '7 days' - %(keep)s * interval '1 second'
    ORDER BY week LIMIT %(most)s
))

-- name: message_attempts
DELETE FROM message_attempts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM message_attempts WHERE updated_at < now() - %(keep)s * interval '1 second' LIMIT %(most)s
))

-- name: deliveries
DELETE FROM deliveries WHERE delivery_key = ANY (ARRAY(
    SELECT delivery_key FROM deliveries
    WHERE finished_at < now() - %(keep)s * interval '1 second' AND state IN ('delivered', 'failed')
    ORDER BY finished_at LIMIT %(most)s
))

-- name: dead_letters
DELETE FROM deliveries WHERE delivery_key = ANY (ARRAY(
    SELECT delivery_key FROM deliveries
    WHERE finished_at < now() - %(keep)s * interval '1 second' AND state IN ('dead_letter', 'expired')
    ORDER BY finished_at LIMIT %(most)s
))

-- name: quarantine
DELETE FROM quarantine WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM quarantine WHERE quarantined_at < now() - %(keep)s * interval '1 second'
    ORDER BY quarantined_at LIMIT %(most)s
))

-- name: app_token_trials
DELETE FROM app_token_trials WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM app_token_trials WHERE period < now() - %(keep)s * interval '1 second' LIMIT %(most)s
))
