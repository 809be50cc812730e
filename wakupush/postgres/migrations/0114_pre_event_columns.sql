-- What a report asks: where messages come from and how late, and which type of push it is.
ALTER TABLE delivery_events ADD COLUMN push_type text;
ALTER TABLE delivery_events ADD COLUMN shard integer;
ALTER TABLE delivery_events ADD COLUMN age real;

CREATE OR REPLACE VIEW delivery_history AS
SELECT event.id, part.step, event.time, event.transaction_id, event.schema_version, part.kind, event.queue, part.queue_wait, event.latency,
    CASE WHEN part.is_plain THEN NULL ELSE event.platform END AS platform,
    CASE WHEN part.is_plain THEN NULL ELSE event.failure END AS failure,
    CASE WHEN part.is_plain THEN NULL ELSE event.reason END AS reason,
    event.attempt, event.batch_size, event.worker, event.trace_id,
    CASE WHEN part.is_plain THEN NULL ELSE event.key_pseudonym END AS key_pseudonym,
    CASE WHEN part.is_plain THEN NULL ELSE event.installation_pseudonym END AS installation_pseudonym,
    event.count,
    CASE WHEN part.is_plain THEN NULL ELSE event.app END AS app,
    CASE WHEN part.is_plain THEN NULL ELSE event.push_type END AS push_type,
    CASE WHEN part.kind = 'received' THEN event.shard END AS shard,
    CASE WHEN part.kind = 'received' THEN event.age END AS age
FROM delivery_events AS event
CROSS JOIN LATERAL (
    SELECT 3 AS step, event.kind,
        CASE WHEN event.schema_version < 3 OR event.kind = 'received' THEN event.queue_wait END AS queue_wait,
        false AS is_plain
    UNION ALL
    SELECT 1, 'received', event.queue_wait, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind <> 'received'
    UNION ALL
    SELECT 2, 'opened', NULL, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind <> 'received'
    UNION ALL
    SELECT 4, 'answered', NULL, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind IN ('registered', 'unregistered')
    UNION ALL
    SELECT 2, 'attempt', NULL, false
    WHERE event.schema_version >= 3 AND event.batch_size IS NOT NULL AND event.kind IN ('delivered', 'unknown', 'failed')
) AS part;
