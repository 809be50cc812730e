-- The exporter of metrics. It needs no registration.

GRANT SELECT (platform, state, next_attempt_at) ON deliveries TO wakupush_exporter;
GRANT SELECT (name) ON schema_migrations TO wakupush_exporter;
