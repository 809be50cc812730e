-- What happened, a row for each thing: newer events tell of what must have happened before them, too
-- (`wakupush.model.events.history`). Older ones stand here as they are.
CREATE VIEW delivery_history AS
SELECT event.id, told.step, event.time, event.transaction_id, event.schema_version, told.kind, event.queue, told.queue_wait, event.latency,
    CASE WHEN told.is_plain THEN NULL ELSE event.platform END AS platform,
    CASE WHEN told.is_plain THEN NULL ELSE event.failure END AS failure,
    CASE WHEN told.is_plain THEN NULL ELSE event.reason END AS reason,
    event.attempt, event.batch_size, event.worker, event.trace_id,
    CASE WHEN told.is_plain THEN NULL ELSE event.key_pseudonym END AS key_pseudonym,
    CASE WHEN told.is_plain THEN NULL ELSE event.installation_pseudonym END AS installation_pseudonym,
    event.count
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
) AS told;
