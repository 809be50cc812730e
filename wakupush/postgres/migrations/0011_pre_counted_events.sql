-- How many messages or notifications an event stands for. What old code writes stands for one.
ALTER TABLE delivery_events ADD COLUMN count integer NOT NULL DEFAULT 1;
-- Messages that are not for us are counted together, and have no name.
ALTER TABLE delivery_events ALTER COLUMN trace_id DROP NOT NULL;
