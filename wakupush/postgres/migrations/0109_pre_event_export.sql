-- The last transaction whose events the lake has; no row where nothing exports. The export writes it after each commit.
CREATE TABLE event_export (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    transaction_id xid8 NOT NULL,
    exported_at timestamptz NOT NULL DEFAULT now()
);

-- Drops the partition of a day of events if it has got no row for `keep` seconds, or, if the lake lacks some, for
-- `keep_missing`. The day of the last transaction that the lake has counts as one of these: by its events the export knows
-- that this is the database which the lake comes from. Returns 'kept', 'dropped', or 'lost' if the lake never gets some.
CREATE FUNCTION drop_events(day date, keep double precision, keep_missing double precision) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    name CONSTANT text := 'delivery_events_' || to_char(day, 'YYYYMMDD');
    -- A row may come a day after the day of its timestamp.
    ends CONSTANT timestamptz := (day + 2)::timestamp AT TIME ZONE 'UTC';
    exported CONSTANT xid8 := (SELECT transaction_id FROM event_export);
    is_needed boolean := false;
    is_missing boolean := false;
BEGIN
    IF now() < ends + greatest(keep, 0) * interval '1 second' THEN
        RETURN 'kept';
    END IF;
    IF exported IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE transaction_id >= $1)', name) INTO is_needed USING exported;
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE transaction_id > $1)', name) INTO is_missing USING exported;
    END IF;
    IF is_needed AND now() < ends + greatest(keep_missing, 0) * interval '1 second' THEN
        RETURN 'kept';
    END IF;
    EXECUTE format('DROP TABLE %I', name);
    RETURN CASE WHEN is_missing THEN 'lost' ELSE 'dropped' END;
END
$$;

REVOKE ALL ON FUNCTION drop_events FROM PUBLIC;

-- It runs with the owner's rights: no table of its caller's making may stand for one of ours.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION drop_events SET search_path = %I, pg_temp', current_schema());
END
$$;
