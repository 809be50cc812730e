-- Retention reads only what it deletes: not past the dead letters of an outage, which stay longer, nor all of the default
-- partitions.
CREATE INDEX deliveries_done ON deliveries (finished_at) WHERE state IN ('delivered', 'failed');
CREATE INDEX ledger_default_age ON ledger_default (received_at);
CREATE INDEX delivery_events_default_age ON delivery_events_default (time);

-- Says whether it dropped the partition of a day, of which it reads nothing: `keep` seconds after the end of the next day.
-- What comes in later than that day, stamped with this one, also has a row in the default partition of the ledger.
-- An unknown table is an error of CASE. The grants of the function stay.
CREATE OR REPLACE FUNCTION drop_partition(parent text, day date, keep double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    CASE parent
        WHEN 'ledger', 'delivery_events' THEN NULL;
    END CASE;
    IF now() < (day + 2)::timestamp AT TIME ZONE 'UTC' + greatest(keep, 0) * interval '1 second' THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I', parent || '_' || to_char(day, 'YYYYMMDD'));
    RETURN true;
END
$$;

-- It runs with the owner's rights: no table of its caller's making may stand for one of ours.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION drop_partition SET search_path = %I, pg_temp', current_schema());
END
$$;
