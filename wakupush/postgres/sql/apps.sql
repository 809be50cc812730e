-- name: page
SELECT key_hash, installation_hash, version, token_type, sealed_device, app FROM registrations
WHERE registered AND (key_hash, installation_hash) > (%(key_hash)b, %(installation_hash)b)
ORDER BY key_hash, installation_hash LIMIT %(most)s

-- name: assign
UPDATE registrations SET app = new.app
FROM unnest(%(key_hash)b::bytea[], %(installation_hash)b::bytea[], %(version)b::numeric[], %(app)b::text[])
    AS new (key, installation, of_version, app)
WHERE key_hash = new.key AND installation_hash = new.installation AND version = new.of_version

-- name: estimate
SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'registrations'::regclass

-- name: unfinished
SELECT DISTINCT app FROM unfinished_deliveries ORDER BY app

-- name: unfinished_devices
SELECT key_hash, installation_hash, registrations.version, token_type, sealed_device, registrations.app
FROM (
    SELECT key_hash, installation_hash FROM deliveries
    WHERE state = 'pending' AND deliveries.app = %(app)s LIMIT %(most)s
) AS waiting
JOIN registrations USING (key_hash, installation_hash)
WHERE registered
