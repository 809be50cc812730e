-- Operators who move registrations from or to another place.

GRANT SELECT (message_id, week), INSERT (message_id, succeeded, expired) ON admitted_requests TO wakupush_rebuild;
GRANT SELECT (key_hash, installation_hash, app, state), DELETE ON deliveries TO wakupush_rebuild;
GRANT SELECT (key_hash, installation_hash), DELETE ON quarantine TO wakupush_rebuild;
GRANT SELECT, INSERT, UPDATE (symmetric_key) ON query_topics TO wakupush_rebuild;
GRANT SELECT, INSERT, UPDATE ON registrations TO wakupush_rebuild;
GRANT SELECT (name) ON schema_migrations TO wakupush_rebuild;
GRANT SELECT ON unfinished_deliveries TO wakupush_rebuild;
