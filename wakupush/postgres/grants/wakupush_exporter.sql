-- The exporter of metrics. It needs no registration.

GRANT SELECT (app, platform, state, next_attempt_at) ON deliveries TO wakupush_exporter;
GRANT SELECT (transaction_id, time) ON delivery_events TO wakupush_exporter;
GRANT SELECT (transaction_id) ON event_export TO wakupush_exporter;
GRANT SELECT (name) ON schema_migrations TO wakupush_exporter;
GRANT SELECT ON unfinished_deliveries TO wakupush_exporter;
GRANT SELECT ON pipeline_runs TO wakupush_exporter;
