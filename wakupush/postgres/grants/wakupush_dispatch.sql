-- The workers that admit push requests and push.

GRANT SELECT (message_id, week, succeeded, expired), INSERT, UPDATE (succeeded, expired) ON admitted_requests TO wakupush_dispatch;
GRANT SELECT (id, created_at, publish_at), INSERT, UPDATE (publish_at), DELETE ON answers TO wakupush_dispatch;
GRANT SELECT, INSERT, UPDATE ON deliveries TO wakupush_dispatch;
GRANT INSERT ON delivery_events TO wakupush_dispatch;
GRANT SELECT (message_hash), INSERT, DELETE ON ledger TO wakupush_dispatch;
GRANT SELECT (message_hash, attempts), INSERT, UPDATE, DELETE ON message_attempts TO wakupush_dispatch;
GRANT SELECT, INSERT, UPDATE (received_at), DELETE ON message_segments TO wakupush_dispatch;
-- All but the messages themselves.
GRANT
    SELECT (message_hash, reason, attempts, retried_at, key_hash, installation_hash),
    INSERT,
    UPDATE (reason, attempts, retried_at, quarantined_at, key_hash, installation_hash),
    DELETE
ON quarantine TO wakupush_dispatch;
GRANT
    SELECT (key_hash, installation_hash, registered, version, token_type, enabled, block_mentions,
        allow_from_contacts_only, token_died_at, suspected_at, proven, sealed_device, access_token_digest,
        blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests),
    UPDATE (token_died_at, suspected_at, proven)
ON registrations TO wakupush_dispatch;
GRANT SELECT (name) ON schema_migrations TO wakupush_dispatch;
GRANT SELECT, INSERT, UPDATE (tried, bad) ON app_token_trials TO wakupush_dispatch;
