-- The workers that register installations.

GRANT SELECT (id, created_at), INSERT, UPDATE (publish_at), DELETE ON answers TO wakupush_registration;
-- Unregistering takes the deliveries of an installation along; it locks them before, for which it may change their keys.
GRANT SELECT (delivery_key, key_hash, installation_hash), UPDATE (delivery_key), DELETE ON deliveries TO wakupush_registration;
GRANT INSERT ON delivery_events TO wakupush_registration;
GRANT SELECT (message_hash), INSERT, DELETE ON ledger TO wakupush_registration;
GRANT SELECT (message_hash, attempts), INSERT, UPDATE, DELETE ON message_attempts TO wakupush_registration;
GRANT SELECT, INSERT, UPDATE (received_at), DELETE ON message_segments TO wakupush_registration;
-- All but the messages themselves.
GRANT
    SELECT (message_hash, reason, attempts, retried_at, key_hash, installation_hash),
    INSERT,
    UPDATE (reason, attempts, retried_at, quarantined_at, key_hash, installation_hash),
    DELETE
ON quarantine TO wakupush_registration;
GRANT INSERT ON query_topics TO wakupush_registration;
-- A row that replaces another one has to be readable, too: Postgres asks for it with ON CONFLICT.
GRANT SELECT, INSERT, UPDATE ON registrations TO wakupush_registration;
GRANT SELECT (name) ON schema_migrations TO wakupush_registration;
