-- Deliveries that were put back before their first attempt are claimed before all others, however many these are.
CREATE INDEX deliveries_first ON deliveries (platform, next_attempt_at) WHERE state = 'pending' AND attempt = 0;
