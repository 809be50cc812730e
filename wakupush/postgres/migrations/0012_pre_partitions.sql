-- Only the owner of a table can make and drop its partitions. The schedule is not the owner: it calls these two, which can
-- do nothing else. An unknown table is an error of CASE.
CREATE FUNCTION create_partition(parent text, day date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    partition text := parent || '_' || to_char(day, 'YYYYMMDD');
    begins timestamptz := day::timestamp AT TIME ZONE 'UTC';
    ends timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    key text;
    first text;
    beyond text;
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
    END CASE;
    IF to_regclass(partition) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', parent);
    IF to_regclass(partition) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition, parent);
    -- What came before its partition was made.
    EXECUTE format(
        'WITH moved AS (DELETE FROM %I WHERE %I >= %L AND %I < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
        parent || '_default', key, first, key, beyond, partition
    );
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, partition, first, beyond);
END
$$;

-- Says whether it dropped the partition of a day that is over: not while it has rows that came in within `keep` seconds.
CREATE FUNCTION drop_partition(parent text, day date, keep double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    partition text := parent || '_' || to_char(day, 'YYYYMMDD');
    received text;
    is_fresh boolean;
BEGIN
    CASE parent
        WHEN 'ledger' THEN received := 'received_at';
        WHEN 'delivery_events' THEN received := 'time';
    END CASE;
    IF day >= (now() AT TIME ZONE 'UTC')::date THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I > now() - $1 * interval ''1 second'')', partition, received)
    INTO is_fresh USING keep;
    IF NOT is_fresh THEN
        EXECUTE format('DROP TABLE %I', partition);
    END IF;
    RETURN NOT is_fresh;
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
