-- The receiver of gorush's webhook, which is called from outside. It needs no registration.

GRANT
    SELECT (delivery_key, app, attempt, state, feedback, lease),
    UPDATE (feedback, feedback_due_at)
ON deliveries TO wakupush_feedback;
GRANT SELECT (name) ON schema_migrations TO wakupush_feedback;
