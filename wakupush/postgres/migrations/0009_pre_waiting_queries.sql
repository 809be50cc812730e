-- Queries that are looked at later, as the ciphertext that they arrived as.
CREATE TABLE waiting_queries (
    message_hash bytea PRIMARY KEY,
    pubsub_topic text NOT NULL,
    content_topic text NOT NULL,
    payload bytea NOT NULL,
    message_timestamp bigint NOT NULL,
    meta bytea NOT NULL,
    seen_at timestamptz NOT NULL,
    -- From when on the schedule enqueues it; NULL until the key of its topic is derived.
    due_at timestamptz
);
CREATE INDEX waiting_queries_due ON waiting_queries (due_at);

-- Users whose topic, as clients use it, has no derived key yet.
CREATE INDEX query_topics_underived ON query_topics (key_hash) WHERE symmetric_key IS NULL AND NOT prefixed;
