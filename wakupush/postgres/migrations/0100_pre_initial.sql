-- What a client registered: what is secret is sealed by the workers. Digests are 16 bytes each, ascending, keyed for each
-- installation. An unregistered installation keeps its key hash and version alone; the installation is then known by a
-- keyed hash, which is the primary key all along.
CREATE TABLE registrations (
    key_hash bytea NOT NULL,
    installation_hash bytea NOT NULL,
    version numeric(20) NOT NULL CHECK (version > 0),
    -- Keyed digest of the request id: tells a repeat from another registration of the same version.
    request_digest bytea NOT NULL,
    registered boolean NOT NULL,
    token_type smallint,
    enabled boolean,
    allow_from_contacts_only boolean,
    block_mentions boolean,
    -- Sealed for this row and version, like the list.
    sealed_device bytea,
    sealed_allowed_key_list bytea,
    access_token_digest bytea,
    blocked_chat_digests bytea,
    muted_chat_digests bytea,
    allowed_mentions_chat_digests bytea,
    token_died_at timestamptz,
    -- When the platform doubted the device token of this version, within the last day; empty again after a success.
    suspected_at timestamptz[],
    -- Whether a push to this version of the registration was ever taken by its platform.
    proven boolean DEFAULT false,
    PRIMARY KEY (key_hash, installation_hash),
    CHECK (registered OR num_nonnulls(
        token_type, enabled, allow_from_contacts_only, block_mentions, sealed_device, sealed_allowed_key_list,
        access_token_digest, blocked_chat_digests, muted_chat_digests, allowed_mentions_chat_digests, token_died_at
    ) = 0)
);
-- Random bytes do not shrink, and a part of a value can then be read without the rest.
ALTER TABLE registrations
    ALTER COLUMN sealed_allowed_key_list SET STORAGE EXTERNAL,
    ALTER COLUMN blocked_chat_digests SET STORAGE EXTERNAL,
    ALTER COLUMN muted_chat_digests SET STORAGE EXTERNAL,
    ALTER COLUMN allowed_mentions_chat_digests SET STORAGE EXTERNAL;
-- By it the retention of registrations finds those whose device token died long ago.
CREATE INDEX registrations_dead ON registrations (token_died_at) WHERE token_died_at IS NOT NULL;

-- Whether one digest is among many. They are uniform, so it lies where its first bytes say, give or take eight standard
-- deviations: of a long list a few kilobytes are read.
CREATE FUNCTION digests_have(digests bytea, digest bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN position(digest IN substring(
    digests
    FROM 16 * greatest(0, floor(
        (get_byte(digest, 0) * 65536 + get_byte(digest, 1) * 256 + get_byte(digest, 2)) / 16777216.0
        * (octet_length(digests) / 16) - 4 * sqrt(octet_length(digests) / 16) - 2
    )::integer) + 1
    FOR 16 * (8 * sqrt(octet_length(digests) / 16) + 5)::integer
)) > 0;

-- How many tokens were tried, and how many were bad, by ten minutes. The slot keeps workers out of each other's way.
CREATE TABLE token_trials (
    platform smallint NOT NULL,
    period timestamptz NOT NULL,
    slot smallint NOT NULL,
    tried integer NOT NULL,
    bad integer NOT NULL,
    PRIMARY KEY (platform, period, slot)
);

-- Where queries for a registered user arrive. The key is derived at the first query.
CREATE TABLE query_topics (
    key_hash bytea NOT NULL,
    prefixed boolean NOT NULL,
    topic bytea NOT NULL,
    symmetric_key bytea,
    -- After a failover of Redis only the topics that were added last are put there again.
    added_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (key_hash, prefixed)
);
CREATE INDEX query_topics_topic ON query_topics (topic);
-- Users whose topic, as clients use it, has no derived key yet.
CREATE INDEX query_topics_underived ON query_topics (key_hash) WHERE symmetric_key IS NULL AND NOT prefixed;
-- Rows come in the order of time, so a few pages tell where the last ones are.
CREATE INDEX query_topics_added_at ON query_topics USING brin (added_at);

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

-- Hashes of processed messages, by the sender's timestamp (part of the hash); the default partition takes absurd ones.
CREATE TABLE ledger (
    message_hash bytea NOT NULL,
    message_timestamp bigint NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (message_hash, message_timestamp)
) PARTITION BY RANGE (message_timestamp);
CREATE TABLE ledger_default PARTITION OF ledger DEFAULT;
-- By it retention reads of the default partition only what it deletes.
CREATE INDEX ledger_default_age ON ledger_default (received_at);

-- How far the Stores were walked: up to there, what a Store has is in the ledger.
CREATE TABLE watermarks (
    -- Host and port of the node, with the path if there is one.
    store text NOT NULL,
    pubsub_topic text NOT NULL,
    -- The queue whose messages were looked for.
    walk text NOT NULL,
    -- Nanoseconds since the epoch, by the senders' clocks.
    walked_to bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store, pubsub_topic, walk)
);

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
    quarantined_at timestamptz NOT NULL DEFAULT now(),
    -- When an operator last put the message into its queue again; the row goes when the message is handled.
    retried_at timestamptz
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
    -- What it says, sealed.
    sealed_content bytea,
    -- What it names, by the digests that registrations have, so that who mutes or blocks it meanwhile is left alone.
    chat_digest bytea,
    author_digest bytea,
    -- NULL where the device gave its access token to contacts only already.
    access_token_digest bytea,
    state text NOT NULL CHECK (state IN ('pending', 'posting', 'delivered', 'failed', 'expired', 'dead_letter')),
    -- How many were begun.
    attempt smallint NOT NULL,
    -- Of the registration that the last attempt went to.
    version numeric(20),
    failure text,
    -- What gorush's feedback webhook says of the attempt under way, or of one that read as delivered.
    feedback text,
    -- From when on the schedule enqueues what was told of a delivery that had read as delivered.
    feedback_due_at timestamptz,
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
-- While the breaker of a platform is open its due rows are left alone, and however many they are must not be read past
-- to find those of the other.
CREATE INDEX deliveries_due ON deliveries (platform, next_attempt_at) WHERE state = 'pending';
CREATE INDEX deliveries_lapsed ON deliveries (platform, lease_until) WHERE state = 'posting';
-- Deliveries that were put back before their first attempt are claimed before all others, however many these are.
CREATE INDEX deliveries_first ON deliveries (platform, next_attempt_at) WHERE state = 'pending' AND attempt = 0;
CREATE INDEX deliveries_feedback ON deliveries (feedback_due_at) WHERE state = 'delivered' AND feedback IS NOT NULL;
CREATE INDEX deliveries_finished ON deliveries (finished_at) WHERE finished_at IS NOT NULL;
-- Retention reads only what it deletes: not past the dead letters of an outage, which stay longer.
CREATE INDEX deliveries_done ON deliveries (finished_at) WHERE state IN ('delivered', 'failed');
CREATE INDEX deliveries_installation ON deliveries (key_hash, installation_hash);
-- What operators list and send again, newest end first; the second index also finds those of one reason, and counts.
CREATE INDEX deliveries_dead_letters ON deliveries (finished_at, delivery_key)
    WHERE state IN ('dead_letter', 'expired');
CREATE INDEX deliveries_dead_letters_reason ON deliveries (failure, finished_at, delivery_key) INCLUDE (platform)
    WHERE state IN ('dead_letter', 'expired');

-- What happened, for the pipeline; see wakupush/model/events.py. transaction_id lets a reader take each row exactly once:
-- rows below pg_snapshot_xmin(pg_current_snapshot()) are complete.
CREATE TABLE delivery_events (
    id bigint GENERATED ALWAYS AS IDENTITY,
    time timestamptz NOT NULL,
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    schema_version smallint NOT NULL,
    kind text NOT NULL,
    -- How many messages or notifications it stands for.
    count integer NOT NULL DEFAULT 1,
    queue text,
    queue_wait real,
    latency real,
    platform text,
    failure text,
    reason text,
    attempt smallint,
    batch_size smallint,
    worker text NOT NULL,
    -- Messages that are not for us are counted together, and have no name.
    trace_id text,
    key_pseudonym bytea,
    installation_pseudonym bytea
) PARTITION BY RANGE (time);
CREATE TABLE delivery_events_default PARTITION OF delivery_events DEFAULT;
CREATE INDEX delivery_events_transaction ON delivery_events (transaction_id);
CREATE INDEX delivery_events_trace ON delivery_events (trace_id);
-- By it retention reads of the default partition only what it deletes.
CREATE INDEX delivery_events_default_age ON delivery_events_default (time);

-- What happened, a row for each thing: an event also tells of what must have happened before it
-- (`wakupush.model.events.history`). Made-up events (version 2 of their schema) stand here as they are.
CREATE VIEW delivery_history AS
SELECT event.id, told.step, event.time, event.transaction_id, event.schema_version, told.kind, event.queue, told.queue_wait, event.latency,
    CASE WHEN told.is_plain THEN NULL ELSE event.platform END AS platform,
    CASE WHEN told.is_plain THEN NULL ELSE event.failure END AS failure,
    CASE WHEN told.is_plain THEN NULL ELSE event.reason END AS reason,
    event.attempt, event.batch_size, event.worker, event.trace_id,
    CASE WHEN told.is_plain THEN NULL ELSE event.key_pseudonym END AS key_pseudonym,
    CASE WHEN told.is_plain THEN NULL ELSE event.installation_pseudonym END AS installation_pseudonym,
    event.count
FROM delivery_events AS event
CROSS JOIN LATERAL (
    SELECT 3 AS step, event.kind,
        CASE WHEN event.schema_version < 3 OR event.kind = 'received' THEN event.queue_wait END AS queue_wait,
        false AS is_plain
    UNION ALL
    SELECT 1, 'received', event.queue_wait, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind <> 'received'
    UNION ALL
    SELECT 2, 'opened', NULL, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind <> 'received'
    UNION ALL
    SELECT 4, 'answered', NULL, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind IN ('registered', 'unregistered')
    UNION ALL
    SELECT 2, 'attempt', NULL, false
    WHERE event.schema_version >= 3 AND event.batch_size IS NOT NULL AND event.kind IN ('delivered', 'unknown', 'failed')
) AS told;

-- Only the owner of a table can make and drop its partitions. The schedule is not the owner: it calls these two, which can
-- do nothing else. An unknown table is an error of CASE.
--
-- A partition is made in steps, each a transaction: `wakupush.postgres.maintenance` takes them. No row is moved. For a day
-- to come the default partition promises to have no row of it, so that Postgres need not look while it holds the lock.
CREATE FUNCTION create_partition(parent text, day date, step text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    partition text := parent || '_' || to_char(day, 'YYYYMMDD');
    rest text := parent || '_default';
    promise text := 'without_' || to_char(day, 'YYYYMMDD');
    begins timestamptz := day::timestamp AT TIME ZONE 'UTC';
    ends timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    key text;
    first text;
    beyond text;
    found boolean := false;
BEGIN
    CASE parent
        WHEN 'ledger' THEN
            key := 'message_timestamp';
            first := extract(epoch FROM begins)::bigint * 1000000000;
            beyond := extract(epoch FROM ends)::bigint * 1000000000;
        WHEN 'delivery_events' THEN
            key := 'time';
            first := begins;
            beyond := ends;
        WHEN 'admitted_requests' THEN
            key := 'week';
            first := day;
            beyond := day + 7;
    END CASE;
    IF step = 'has rows' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= %L AND %I < %L)', rest, key, first, key, beyond)
        INTO found;
        RETURN found;
    ELSIF step = 'check' THEN
        EXECUTE format('ALTER TABLE %I VALIDATE CONSTRAINT %I', rest, promise);
        RETURN true;
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', rest);
    IF step = 'attach if empty' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', rest) INTO found;
    END IF;
    IF step IN ('promise', 'attach if empty', 'take back') THEN
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS %I', rest, promise);
    END IF;
    IF step = 'promise' THEN
        EXECUTE format(
            'ALTER TABLE %I ADD CONSTRAINT %I CHECK (%I < %L OR %I >= %L) NOT VALID',
            rest, promise, key, first, key, beyond
        );
    ELSIF step IN ('attach', 'attach if empty') AND NOT found AND to_regclass(partition) IS NULL THEN
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition, parent);
        EXECUTE format(
            'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, partition, first, beyond
        );
    END IF;
    IF step = 'attach' THEN
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS %I', rest, promise);
    END IF;
    RETURN true;
END
$$;

-- Says whether it dropped the partition of a day or week, of which it reads nothing: `keep` seconds after no row comes into
-- it any more. A row may come a day after the day of its timestamp; what comes later also has a row in the default partition
-- of the ledger.
-- An unknown table is an error of CASE.
CREATE FUNCTION drop_partition(parent text, day date, keep double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    days integer;
BEGIN
    CASE parent
        WHEN 'ledger', 'delivery_events' THEN days := 2;
        WHEN 'admitted_requests' THEN days := 7;
    END CASE;
    IF now() < (day + days)::timestamp AT TIME ZONE 'UTC' + greatest(keep, 0) * interval '1 second' THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I', parent || '_' || to_char(day, 'YYYYMMDD'));
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION create_partition, drop_partition FROM PUBLIC;

-- They run with the owner's rights: no table of their caller's making may stand for one of ours.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION create_partition SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION drop_partition SET search_path = %I, pg_temp', current_schema());
END
$$;

-- The catalog of the lake's tables, which Iceberg itself reads and writes: its JDBC catalog's tables, schema version V1.
CREATE SCHEMA wakupush_lake;

CREATE TABLE wakupush_lake.iceberg_tables (
    catalog_name varchar(255) NOT NULL,
    table_namespace varchar(255) NOT NULL,
    table_name varchar(255) NOT NULL,
    metadata_location varchar(1000),
    previous_metadata_location varchar(1000),
    iceberg_type varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);

CREATE TABLE wakupush_lake.iceberg_namespace_properties (
    catalog_name varchar(255) NOT NULL,
    namespace varchar(255) NOT NULL,
    property_key varchar(255),
    property_value varchar(1000),
    PRIMARY KEY (catalog_name, namespace, property_key)
);

-- The Monday of this week, UTC.
CREATE FUNCTION this_week() RETURNS date LANGUAGE sql STABLE
RETURN date_trunc('week', now() AT TIME ZONE 'UTC')::date;

-- Application message ids of push requests of which an item was taken on; for each item 1 if it was reported so, or 0.
CREATE TABLE admitted_requests (
    message_id bytea NOT NULL,
    -- Of the first admission: a repeat changes that row.
    week date NOT NULL DEFAULT this_week(),
    succeeded text NOT NULL,
    -- It waited in our own queues until it was too old: neither pushed then nor by a repeat.
    expired boolean NOT NULL DEFAULT false,
    PRIMARY KEY (message_id, week)
) PARTITION BY RANGE (week);
CREATE TABLE admitted_requests_default PARTITION OF admitted_requests DEFAULT;
-- By it retention reads of the default partition only what it deletes.
CREATE INDEX admitted_requests_default_age ON admitted_requests_default (week);
