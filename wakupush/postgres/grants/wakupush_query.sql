-- The workers that answer queries for registrations.

GRANT SELECT (id, created_at), INSERT, UPDATE (publish_at), DELETE ON answers TO wakupush_query;
GRANT INSERT ON delivery_events TO wakupush_query;
GRANT SELECT (message_hash), INSERT, DELETE ON ledger TO wakupush_query;
GRANT SELECT (message_hash, attempts), INSERT, UPDATE, DELETE ON message_attempts TO wakupush_query;
GRANT SELECT, INSERT, UPDATE (received_at), DELETE ON message_segments TO wakupush_query;
-- All but the messages themselves.
GRANT
    SELECT (message_hash, reason, attempts, retried_at, key_hash, installation_hash),
    INSERT,
    UPDATE (reason, attempts, retried_at, quarantined_at, key_hash, installation_hash),
    DELETE
ON quarantine TO wakupush_query;
GRANT SELECT ON query_topics TO wakupush_query;
GRANT
    SELECT (key_hash, installation_hash, registered, server_key, version, token_died_at, proven, allow_from_contacts_only,
        sealed_device, sealed_allowed_key_list)
ON registrations TO wakupush_query;
GRANT SELECT (name) ON schema_migrations TO wakupush_query;
GRANT INSERT ON waiting_queries TO wakupush_query;
