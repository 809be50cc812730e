-- The workers of the pool rest: the rights of those for registrations, queries and push requests together.

GRANT SELECT (expired, message_id, succeeded, week), INSERT, UPDATE (succeeded, expired) ON admitted_requests TO wakupush_rest;
GRANT SELECT (created_at, id, publish_at), INSERT, UPDATE (publish_at), DELETE ON answers TO wakupush_rest;
GRANT SELECT, INSERT, UPDATE (bad, tried) ON app_token_trials TO wakupush_rest;
GRANT SELECT, INSERT, UPDATE, DELETE ON deliveries TO wakupush_rest;
GRANT INSERT ON delivery_events TO wakupush_rest;
GRANT SELECT (message_hash), INSERT, DELETE ON ledger TO wakupush_rest;
GRANT SELECT (attempts, message_hash), INSERT, UPDATE, DELETE ON message_attempts TO wakupush_rest;
GRANT SELECT, INSERT, UPDATE (received_at), DELETE ON message_segments TO wakupush_rest;
GRANT
    SELECT (attempts, installation_hash, key_hash, message_hash, reason, retried_at),
    INSERT,
    UPDATE (attempts, installation_hash, key_hash, quarantined_at, reason, retried_at),
    DELETE
ON quarantine TO wakupush_rest;
GRANT SELECT, INSERT ON query_topics TO wakupush_rest;
GRANT SELECT, INSERT, UPDATE ON registrations TO wakupush_rest;
GRANT SELECT (name) ON schema_migrations TO wakupush_rest;
GRANT INSERT ON waiting_queries TO wakupush_rest;
