-- Beat, whose jobs retry, expire and delete. It owns nothing: functions make, drop and sort for it.

GRANT SELECT (ctid, week), DELETE ON admitted_requests_default TO wakupush_schedule;
GRANT SELECT, UPDATE (publish_at), DELETE ON answers TO wakupush_schedule;
GRANT SELECT ON answer_shards TO wakupush_schedule;
GRANT
    SELECT (delivery_key, app, platform, state, attempt, failure, feedback, feedback_due_at, next_attempt_at, lease_until,
        expires_at, finished_at, task_id, key_hash, installation_hash),
    UPDATE (state, failure, lease, lease_until, next_attempt_at, feedback_due_at),
    DELETE
ON deliveries TO wakupush_schedule;
GRANT SELECT (ctid, time, transaction_id), DELETE ON delivery_events_default TO wakupush_schedule;
GRANT SELECT (transaction_id, exported_at), DELETE ON event_export TO wakupush_schedule;
-- What waited is taken out of the ledger again when it is enqueued.
GRANT SELECT (message_hash), DELETE ON ledger TO wakupush_schedule;
GRANT SELECT (ctid, received_at), DELETE ON ledger_default TO wakupush_schedule;
GRANT SELECT (ctid, updated_at), DELETE ON message_attempts TO wakupush_schedule;
GRANT SELECT, UPDATE (received_at), DELETE ON message_segments TO wakupush_schedule;
GRANT
    SELECT (ctid, message_hash, payload, quarantined_at, key_hash, installation_hash),
    DELETE
ON quarantine TO wakupush_schedule;
GRANT SELECT, UPDATE (symmetric_key), DELETE ON query_topics TO wakupush_schedule;
-- What had a dead token for long is unregistered, and its secrets go.
GRANT
    SELECT (key_hash, installation_hash, registered, token_died_at),
    UPDATE (app, server_key, token_type, enabled, allow_from_contacts_only, block_mentions, sealed_device,
        sealed_allowed_key_list, access_token_digest, blocked_chat_digests, muted_chat_digests, device_digest,
        allowed_mentions_chat_digests, registered, request_digest, token_died_at, suspected_at)
ON registrations TO wakupush_schedule;
GRANT SELECT (name) ON schema_migrations TO wakupush_schedule;
GRANT SELECT, DELETE ON app_token_trials TO wakupush_schedule;
GRANT SELECT ON unfinished_deliveries TO wakupush_schedule;
GRANT SELECT, UPDATE (due_at), DELETE ON waiting_queries TO wakupush_schedule;
GRANT EXECUTE ON FUNCTION create_partition(text, date, text) TO wakupush_schedule;
GRANT EXECUTE ON FUNCTION drop_events(date, double precision, double precision) TO wakupush_schedule;
GRANT EXECUTE ON FUNCTION drop_partition(text, date, double precision) TO wakupush_schedule;
GRANT EXECUTE ON FUNCTION sort_rows(text, bytea, integer) TO wakupush_schedule;
