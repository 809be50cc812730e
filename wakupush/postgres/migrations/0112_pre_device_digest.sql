-- A keyed digest of the device that a registration names, another one in each row. It says whether the next version names
-- the same, so that what is known of the device stays. NULL in rows that older code wrote.
ALTER TABLE registrations ADD COLUMN device_digest bytea;
