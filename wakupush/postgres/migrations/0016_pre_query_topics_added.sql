-- When a topic was added: after a failover of Redis only the last ones are put there again. Those before this migration
-- have its time, without a rewrite of the table.
ALTER TABLE query_topics ADD COLUMN added_at timestamptz NOT NULL DEFAULT now();

-- Rows come in the order of time, so a few pages tell where the last ones are.
CREATE INDEX query_topics_added_at ON query_topics USING brin (added_at);
