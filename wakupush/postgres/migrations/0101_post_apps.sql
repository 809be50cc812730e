DROP INDEX deliveries_due, deliveries_lapsed, deliveries_first, deliveries_dead_letters_reason;
DROP TABLE token_trials;
