-- The server's key that the grant of a registration names: the first 8 bytes of its hash. NULL for the root, the only key
-- of a server that was never given another one.
ALTER TABLE registrations ADD COLUMN server_key bytea;
