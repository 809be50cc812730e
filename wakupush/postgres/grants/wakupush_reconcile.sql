-- The walk through Stores for messages that never arrived. It needs no registration.

GRANT SELECT (message_hash) ON ledger TO wakupush_reconcile;
GRANT SELECT (message_hash, updated_at) ON message_attempts TO wakupush_reconcile;
GRANT SELECT (name) ON schema_migrations TO wakupush_reconcile;
GRANT SELECT, INSERT, UPDATE (walked_to, updated_at) ON watermarks TO wakupush_reconcile;
