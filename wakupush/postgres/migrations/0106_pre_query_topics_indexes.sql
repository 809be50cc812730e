-- Each statement is a transaction.
-- Topics, as clients use them, whose key is not derived yet: those of the users who registered last come first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS query_topics_newest ON query_topics (added_at)
    WHERE symmetric_key IS NULL AND NOT prefixed;
