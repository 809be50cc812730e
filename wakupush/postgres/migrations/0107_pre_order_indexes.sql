-- Each statement is a transaction.
CREATE INDEX CONCURRENTLY IF NOT EXISTS registrations_written ON registrations (key_hash, installation_hash)
    WHERE written_on IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS query_topics_written ON query_topics (key_hash, prefixed)
    WHERE written_on IS NOT NULL;
-- Dead letters whose times are exact.
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_exact ON deliveries (delivery_key)
    WHERE state IN ('dead_letter', 'expired')
        AND finished_at AT TIME ZONE 'UTC' <> date_trunc('day', finished_at AT TIME ZONE 'UTC');
