-- A delivered one keeps the lease of its attempt, so that a late report is known to be about that attempt.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_check1;
ALTER TABLE deliveries ADD CONSTRAINT deliveries_lease CHECK (state <> 'posting' OR lease IS NOT NULL) NOT VALID;
