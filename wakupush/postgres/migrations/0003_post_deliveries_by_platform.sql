-- The code before 0003 claimed by these.
DROP INDEX deliveries_pending;
DROP INDEX deliveries_posting;
