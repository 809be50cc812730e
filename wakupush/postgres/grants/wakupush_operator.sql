-- Operators: dead letters, the quarantine, device tokens and the doctor.

GRANT
    SELECT (delivery_key, key_hash, installation_hash, app, platform, notification_type, state, attempt, version,
        failure, next_attempt_at, seen_at, expires_at, finished_at, trace_id),
    UPDATE (state, attempt, failure, next_attempt_at, expires_at, finished_at),
    DELETE
ON deliveries TO wakupush_operator;
GRANT SELECT ON delivery_history TO wakupush_operator;
GRANT SELECT (time, transaction_id, kind, failure, reason, count, trace_id, key_pseudonym) ON delivery_events TO wakupush_operator;
GRANT SELECT (transaction_id) ON event_export TO wakupush_operator;
GRANT SELECT (message_hash), DELETE ON ledger TO wakupush_operator;
GRANT SELECT (message_hash), DELETE ON message_attempts TO wakupush_operator;
GRANT SELECT, UPDATE (retried_at), DELETE ON quarantine TO wakupush_operator;
GRANT
    SELECT (key_hash, installation_hash, registered, server_key, version, app, token_type, token_died_at, suspected_at),
    UPDATE (token_died_at)
ON registrations TO wakupush_operator;
GRANT SELECT (name, checksum) ON schema_migrations TO wakupush_operator;
GRANT SELECT (store, pubsub_topic, walk, walked_to) ON watermarks TO wakupush_operator;
GRANT SELECT ON unfinished_deliveries TO wakupush_operator;
GRANT SELECT, DELETE ON app_token_trials TO wakupush_operator;
