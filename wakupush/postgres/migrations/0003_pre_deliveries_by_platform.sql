-- While the breaker of a platform is open its due rows are left alone, and however many they are must not be read past
-- to find those of the other.
CREATE INDEX deliveries_due ON deliveries (platform, next_attempt_at) WHERE state = 'pending';
CREATE INDEX deliveries_lapsed ON deliveries (platform, lease_until) WHERE state = 'posting';
