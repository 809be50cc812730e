-- The same rows as before, as a union of scans: a lateral join cost 15 µs a row, which is all that an export took.
CREATE OR REPLACE VIEW delivery_history AS
-- What each event says itself.
SELECT id, 3 AS step, time, transaction_id, schema_version, kind, queue,
    CASE WHEN schema_version < 3 OR kind = 'received' THEN queue_wait END AS queue_wait, latency, platform, failure, reason,
    attempt, batch_size, worker, trace_id, key_pseudonym, installation_pseudonym, count, app, push_type,
    CASE WHEN kind = 'received' THEN shard END AS shard, CASE WHEN kind = 'received' THEN age END AS age
FROM delivery_events
UNION ALL
SELECT id, 1, time, transaction_id, schema_version, 'received', queue, queue_wait, latency, NULL, NULL, NULL,
    attempt, batch_size, worker, trace_id, NULL, NULL, count, NULL, NULL, shard, age
FROM delivery_events
WHERE schema_version >= 3 AND queue_wait IS NOT NULL AND kind <> 'received'
UNION ALL
SELECT id, 2, time, transaction_id, schema_version, 'opened', queue, NULL, latency, NULL, NULL, NULL,
    attempt, batch_size, worker, trace_id, NULL, NULL, count, NULL, NULL, NULL, NULL
FROM delivery_events
WHERE schema_version >= 3 AND queue_wait IS NOT NULL AND kind <> 'received'
UNION ALL
SELECT id, 4, time, transaction_id, schema_version, 'answered', queue, NULL, latency, NULL, NULL, NULL,
    attempt, batch_size, worker, trace_id, NULL, NULL, count, NULL, NULL, NULL, NULL
FROM delivery_events
WHERE schema_version >= 3 AND queue_wait IS NOT NULL AND kind IN ('registered', 'unregistered')
UNION ALL
SELECT id, 2, time, transaction_id, schema_version, 'attempt', queue, NULL, latency, platform, failure, reason,
    attempt, batch_size, worker, trace_id, key_pseudonym, installation_pseudonym, count, app, push_type, NULL, NULL
FROM delivery_events
WHERE schema_version >= 3 AND batch_size IS NOT NULL AND kind IN ('delivered', 'unknown', 'failed');
