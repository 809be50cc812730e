-- What a client registered. An unregistered installation keeps its key hash and version alone; the installation is
-- then known by a keyed hash, which is the primary key all along.
CREATE TABLE registrations (
    key_hash bytea NOT NULL,
    installation_hash bytea NOT NULL,
    version numeric(20) NOT NULL CHECK (version > 0),
    -- Keyed digest of the request id: tells a repeat from another registration of the same version.
    request_digest bytea NOT NULL,
    registered boolean NOT NULL,
    installation_id text,
    token_type smallint,
    device_token text,
    access_token text,
    "grant" bytea,
    enabled boolean,
    apn_topic text,
    allow_from_contacts_only boolean,
    block_mentions boolean,
    allowed_key_list bytea[],
    blocked_chat_list bytea[],
    muted_chat_list bytea[],
    allowed_mentions_chat_list bytea[],
    token_died_at timestamptz,
    PRIMARY KEY (key_hash, installation_hash),
    CHECK (registered OR num_nonnulls(
        installation_id, token_type, device_token, access_token, "grant", enabled, apn_topic,
        allow_from_contacts_only, block_mentions, allowed_key_list, blocked_chat_list, muted_chat_list,
        allowed_mentions_chat_list, token_died_at
    ) = 0)
);

-- Where queries for a registered user arrive. The key is derived at the first query.
CREATE TABLE query_topics (
    key_hash bytea NOT NULL,
    prefixed boolean NOT NULL,
    topic bytea NOT NULL,
    symmetric_key bytea,
    PRIMARY KEY (key_hash, prefixed)
);
CREATE INDEX query_topics_topic ON query_topics (topic);

-- Hashes of processed messages, by the sender's timestamp (part of the hash); the default partition takes absurd ones.
CREATE TABLE ledger (
    message_hash bytea NOT NULL,
    message_timestamp bigint NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (message_hash, message_timestamp)
) PARTITION BY RANGE (message_timestamp);
CREATE TABLE ledger_default PARTITION OF ledger DEFAULT;

-- Messages that are handled alone because they, or a neighbour, failed before.
CREATE TABLE message_attempts (
    message_hash bytea PRIMARY KEY,
    attempts smallint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Messages that failed by themselves, as the ciphertext that they arrived as.
CREATE TABLE quarantine (
    message_hash bytea PRIMARY KEY,
    queue text NOT NULL,
    pubsub_topic text NOT NULL,
    content_topic text NOT NULL,
    payload bytea NOT NULL,
    message_timestamp bigint NOT NULL,
    meta bytea NOT NULL,
    seen_at timestamptz NOT NULL,
    reason text NOT NULL,
    attempts smallint NOT NULL,
    key_hash bytea,
    installation_hash bytea,
    quarantined_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX quarantine_installation ON quarantine (key_hash, installation_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX quarantine_age ON quarantine (quarantined_at);

-- Parts of messages that came in segments, until the last one is here.
CREATE TABLE message_segments (
    -- Compressed key that signed the parts at the transport layer, empty if they are unsigned.
    signer bytea NOT NULL,
    entire_message_hash bytea NOT NULL,
    index integer NOT NULL,
    payload bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (signer, entire_message_hash, index)
);
CREATE INDEX message_segments_age ON message_segments (received_at);

-- Application message ids of push requests of which an item was taken on; for each item 1 if it was reported so, or 0.
CREATE TABLE admitted_requests (
    message_id bytea PRIMARY KEY,
    succeeded text NOT NULL,
    admitted_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX admitted_requests_age ON admitted_requests USING brin (admitted_at);

-- Sealed answers that no node has taken yet.
CREATE TABLE answers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pubsub_topic text NOT NULL,
    content_topic text NOT NULL,
    payload bytea NOT NULL,
    trace_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- From when on the schedule publishes it, unless its worker did.
    publish_at timestamptz NOT NULL
);
CREATE INDEX answers_due ON answers (publish_at);

-- Notifications on their way to a device.
CREATE TABLE deliveries (
    delivery_key bytea PRIMARY KEY,
    key_hash bytea NOT NULL,
    installation_hash bytea NOT NULL,
    platform smallint NOT NULL,
    notification_type smallint NOT NULL,
    chat_id bytea,
    message bytea,
    state text NOT NULL CHECK (state IN ('pending', 'posting', 'delivered', 'failed', 'expired', 'dead_letter')),
    -- How many were begun.
    attempt smallint NOT NULL,
    -- Of the registration that the last attempt went to.
    version numeric(20),
    failure text,
    next_attempt_at timestamptz,
    -- Who posts proves by its lease that it is still its own.
    lease uuid,
    lease_until timestamptz,
    seen_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    finished_at timestamptz,
    task_id text NOT NULL,
    trace_id text NOT NULL,
    CHECK ((state = 'pending') = (next_attempt_at IS NOT NULL)),
    CHECK ((state = 'posting') = (lease IS NOT NULL)),
    CHECK ((state = 'posting') = (lease_until IS NOT NULL)),
    CHECK ((state IN ('pending', 'posting')) = (finished_at IS NULL))
);
CREATE INDEX deliveries_pending ON deliveries (next_attempt_at) WHERE state = 'pending';
CREATE INDEX deliveries_posting ON deliveries (lease_until) WHERE state = 'posting';
CREATE INDEX deliveries_finished ON deliveries (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX deliveries_installation ON deliveries (key_hash, installation_hash);

-- What happened, for the pipeline; see wakupush/events.py. transaction_id lets a reader take each row exactly once:
-- rows below pg_snapshot_xmin(pg_current_snapshot()) are complete.
CREATE TABLE delivery_events (
    id bigint GENERATED ALWAYS AS IDENTITY,
    time timestamptz NOT NULL,
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    schema_version smallint NOT NULL,
    kind text NOT NULL,
    queue text,
    queue_wait real,
    latency real,
    platform text,
    failure text,
    reason text,
    attempt smallint,
    batch_size smallint,
    worker text NOT NULL,
    trace_id text NOT NULL,
    key_pseudonym bytea,
    installation_pseudonym bytea
) PARTITION BY RANGE (time);
CREATE TABLE delivery_events_default PARTITION OF delivery_events DEFAULT;
CREATE INDEX delivery_events_transaction ON delivery_events (transaction_id);
CREATE INDEX delivery_events_trace ON delivery_events (trace_id);
