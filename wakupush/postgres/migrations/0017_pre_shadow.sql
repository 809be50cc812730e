-- The time in which another server with the same key answers and pushes: one row at most. What is seen before
-- `answers_since` is stored and not answered, and everything is until that is known.
CREATE TABLE shadow (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    begun_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    answers_since timestamptz,
    CHECK ((ended_at IS NULL) = (answers_since IS NULL))
);

-- Messages that were decided in that time and would have been answered, as the ciphertext that they arrived as.
CREATE TABLE shadowed_messages (
    message_hash bytea PRIMARY KEY,
    queue text NOT NULL,
    pubsub_topic text NOT NULL,
    content_topic text NOT NULL,
    payload bytea NOT NULL,
    message_timestamp bigint NOT NULL,
    meta bytea NOT NULL,
    seen_at timestamptz NOT NULL,
    -- Where its answer would have gone, on the same shard, and the bytes of that, or of its first part.
    answer_topic text NOT NULL,
    answer_bytes integer NOT NULL,
    -- Application message id (16 bytes) of a push request of which an item would have been taken on.
    request_id bytea
);
CREATE INDEX shadowed_messages_age ON shadowed_messages (seen_at);
