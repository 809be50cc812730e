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
