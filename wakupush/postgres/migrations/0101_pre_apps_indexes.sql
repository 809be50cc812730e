-- Each statement is a transaction.
-- Each does the work of the index without the app, which code of the previous release uses until it ends.
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_app_due ON deliveries (app, platform, next_attempt_at)
    WHERE state = 'pending';
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_app_lapsed ON deliveries (app, platform, lease_until)
    WHERE state = 'posting';
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_app_first ON deliveries (app, platform, next_attempt_at)
    WHERE state = 'pending' AND attempt = 0;
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_app_dead_letters ON deliveries
    (failure, finished_at, delivery_key) INCLUDE (app, platform)
    WHERE state IN ('dead_letter', 'expired');
