-- By it the retention of registrations finds those whose device token died long ago.
CREATE INDEX registrations_dead ON registrations (token_died_at) WHERE token_died_at IS NOT NULL;
