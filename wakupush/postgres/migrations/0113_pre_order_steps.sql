-- Writes the next rows of past days anew, in the order of their keys, with times in whole days. Returns where the next step
-- begins, NULL if no row is left. Rows of today count as well, or a step would read all of them to find none of past days.
-- Rows that others are changing keep their place until the next run. Whoever waits for a row finds it gone, and the next
-- statement finds the new one.
-- An unknown table is an error of CASE.
CREATE OR REPLACE FUNCTION sort_rows(parent text, start bytea, most integer) RETURNS bytea
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    today CONSTANT timestamptz := date_trunc('day', now(), 'UTC');
    -- Longer than any key.
    behind_all CONSTANT bytea := decode(repeat('ff', 65), 'hex');
    topic query_topics%ROWTYPE;
    registration registrations%ROWTYPE;
    delivery deliveries%ROWTYPE;
    keys bytea[];
    last bytea;
    -- Where the step ends. A comparison with NULL beside it would keep a generic plan from using the index.
    before bytea;
BEGIN
    CASE parent
        WHEN 'query_topics' THEN
            SELECT key_hash INTO last FROM query_topics WHERE key_hash >= start AND written_on IS NOT NULL
            ORDER BY key_hash, prefixed OFFSET most LIMIT 1;
            before := coalesce(last, behind_all);
            FOR topic IN
                SELECT * FROM query_topics
                WHERE key_hash >= start AND key_hash < before
                    AND written_on < (now() AT TIME ZONE 'UTC')::date
                ORDER BY key_hash, prefixed FOR UPDATE SKIP LOCKED
            LOOP
                DELETE FROM query_topics WHERE key_hash = topic.key_hash AND prefixed = topic.prefixed;
                topic.written_on := NULL;
                topic.added_at := date_trunc('day', topic.added_at, 'UTC');
                INSERT INTO query_topics VALUES (topic.*);
            END LOOP;
        WHEN 'registrations' THEN
            SELECT key_hash INTO last FROM registrations WHERE key_hash >= start AND written_on IS NOT NULL
            ORDER BY key_hash, installation_hash OFFSET most LIMIT 1;
            before := coalesce(last, behind_all);
            FOR registration IN
                SELECT * FROM registrations
                WHERE key_hash >= start AND key_hash < before
                    AND written_on < (now() AT TIME ZONE 'UTC')::date
                ORDER BY key_hash, installation_hash FOR UPDATE SKIP LOCKED
            LOOP
                DELETE FROM registrations
                WHERE key_hash = registration.key_hash AND installation_hash = registration.installation_hash;
                registration.written_on := NULL;
                registration.token_died_at := date_trunc('day', registration.token_died_at, 'UTC');
                -- Doubts count within a day.
                registration.suspected_at := NULL;
                INSERT INTO registrations VALUES (registration.*);
            END LOOP;
        WHEN 'deliveries' THEN
            SELECT delivery_key INTO last FROM deliveries
            WHERE delivery_key >= start AND state IN ('dead_letter', 'expired')
                AND finished_at AT TIME ZONE 'UTC' <> date_trunc('day', finished_at AT TIME ZONE 'UTC')
            ORDER BY delivery_key OFFSET most LIMIT 1;
            before := coalesce(last, behind_all);
            keys := ARRAY(
                SELECT delivery_key FROM deliveries
                WHERE delivery_key >= start AND delivery_key < before
                    AND state IN ('dead_letter', 'expired') AND finished_at < today
                    AND finished_at AT TIME ZONE 'UTC' <> date_trunc('day', finished_at AT TIME ZONE 'UTC')
            );
            -- Whoever unregisters a device locks it, and then deletes its deliveries.
            PERFORM FROM registrations
            WHERE (key_hash, installation_hash) IN (
                SELECT key_hash, installation_hash FROM deliveries WHERE delivery_key = ANY (keys)
            )
            ORDER BY key_hash, installation_hash FOR NO KEY UPDATE;
            FOR delivery IN
                SELECT * FROM deliveries
                WHERE delivery_key = ANY (keys) AND state IN ('dead_letter', 'expired') AND finished_at < today
                ORDER BY delivery_key FOR UPDATE SKIP LOCKED
            LOOP
                DELETE FROM deliveries WHERE delivery_key = delivery.delivery_key;
                delivery.seen_at := date_trunc('day', delivery.seen_at, 'UTC');
                delivery.expires_at := date_trunc('day', delivery.expires_at, 'UTC');
                delivery.finished_at := date_trunc('day', delivery.finished_at, 'UTC');
                delivery.trace_id := NULL;
                INSERT INTO deliveries VALUES (delivery.*);
            END LOOP;
    END CASE;
    RETURN last;
END
$$;

-- A replaced function loses it.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION sort_rows SET search_path = %I, pg_temp', current_schema());
END
$$;
