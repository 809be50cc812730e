-- Each statement is a transaction.
CREATE INDEX CONCURRENTLY IF NOT EXISTS answers_age ON answers (pubsub_topic, created_at);
