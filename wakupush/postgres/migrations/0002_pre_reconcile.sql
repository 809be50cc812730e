-- How far the Stores were walked: up to there, what a Store has is in the ledger.
CREATE TABLE watermarks (
    -- Host and port of the node, with the path if there is one.
    store text NOT NULL,
    pubsub_topic text NOT NULL,
    -- Of `ingest.reconcile`: own or query topics.
    walk text NOT NULL,
    -- Nanoseconds since the epoch, by the senders' clocks.
    walked_to bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store, pubsub_topic, walk)
);
