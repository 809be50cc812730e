-- Each statement is a transaction.
-- Pending deliveries past their time to live, whatever their next attempt waits for.
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_expiring ON deliveries (expires_at) WHERE state = 'pending';
