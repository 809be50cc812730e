-- What is secret of a registration, sealed by the workers; it counts only if sealed_version is the row's version, as
-- older code writes neither. Digests are 16 bytes each, ascending, keyed for each installation.
ALTER TABLE registrations
    ADD COLUMN sealed_version numeric(20),
    ADD COLUMN sealed_device bytea,
    ADD COLUMN sealed_allowed_key_list bytea,
    ADD COLUMN access_token_digest bytea,
    -- From when on a device has another access token than before; NULL where that is not known.
    ADD COLUMN access_token_since timestamptz,
    ADD COLUMN blocked_chat_digests bytea,
    ADD COLUMN muted_chat_digests bytea,
    ADD COLUMN allowed_mentions_chat_digests bytea,
    -- Random bytes do not shrink, and a part of a value can then be read without the rest.
    ALTER COLUMN sealed_allowed_key_list SET STORAGE EXTERNAL,
    ALTER COLUMN blocked_chat_digests SET STORAGE EXTERNAL,
    ALTER COLUMN muted_chat_digests SET STORAGE EXTERNAL,
    ALTER COLUMN allowed_mentions_chat_digests SET STORAGE EXTERNAL;

-- Rows that a worker is still to seal: of older code, or with something in the clear.
CREATE INDEX registrations_unsealed ON registrations (key_hash, installation_hash)
    WHERE sealed_version IS DISTINCT FROM version OR installation_id IS NOT NULL;

-- What a notification says, sealed; and what it names, by the digests that registrations have, so that who mutes or
-- blocks it meanwhile is left alone.
ALTER TABLE deliveries
    ADD COLUMN sealed_content bytea,
    ADD COLUMN chat_digest bytea,
    ADD COLUMN author_digest bytea,
    -- NULL where the device gave its access token to contacts only already.
    ADD COLUMN access_token_digest bytea;
CREATE INDEX deliveries_unsealed ON deliveries (delivery_key) WHERE message IS NOT NULL;

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
