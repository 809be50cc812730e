-- name: add_recent
INSERT INTO ledger (message_hash, message_timestamp)
SELECT * FROM unnest(%(hashes)b::bytea[], %(timestamps)b::bigint[])
ON CONFLICT DO NOTHING
RETURNING message_hash

-- name: add
-- The partition of a day is dropped unread, so a message that is stamped before yesterday has a second row, in the default
-- partition, which is kept by its age. A message is new if none of its rows was there.
WITH ledger_rows AS MATERIALIZED (
    SELECT hash, timestamp FROM unnest(%(hashes)b::bytea[], %(timestamps)b::bigint[]) AS message (hash, timestamp)
    UNION ALL
    SELECT hash, 0 FROM unnest(%(hashes)b::bytea[], %(timestamps)b::bigint[]) AS message (hash, timestamp)
    WHERE timestamp <> 0 AND timestamp < (
        SELECT extract(epoch FROM date_trunc('day', now(), 'UTC') - interval '1 day')::bigint * 1000000000
    )
), new_rows AS (
    INSERT INTO ledger (message_hash, message_timestamp) TABLE ledger_rows
    ON CONFLICT DO NOTHING
    RETURNING message_hash
)
TABLE new_rows
EXCEPT (SELECT hash FROM ledger_rows EXCEPT ALL TABLE new_rows)

-- name: remove
DELETE FROM ledger WHERE message_hash = ANY (%(hashes)b)

-- name: known
SELECT message_hash FROM ledger WHERE message_hash = ANY (%(hashes)b)

-- name: attempts
SELECT message_hash, attempts FROM message_attempts WHERE message_hash = ANY (%(hashes)b)

-- name: count_attempt
INSERT INTO message_attempts AS counted (message_hash, attempts) VALUES (%(hash)s, 1)
ON CONFLICT (message_hash) DO UPDATE SET attempts = counted.attempts + 1, updated_at = now()

-- name: touch_attempt
UPDATE message_attempts SET updated_at = now() WHERE message_hash = %(hash)s

-- name: refund_attempt
UPDATE message_attempts SET attempts = attempts - 1 WHERE message_hash = %(hash)s AND attempts > 0

-- name: forget_attempts
WITH done AS (DELETE FROM quarantine WHERE message_hash = %(hash)s AND retried_at IS NOT NULL)
DELETE FROM message_attempts WHERE message_hash = %(hash)s

-- name: quarantine
INSERT INTO quarantine AS known (
    message_hash, queue, pubsub_topic, content_topic, payload, message_timestamp, meta, seen_at, reason, attempts,
    key_hash, installation_hash
) VALUES (
    %(hash)s, %(queue)s, %(pubsub_topic)s, %(content_topic)s, %(payload)s, %(timestamp)s, %(meta)s,
    to_timestamp(%(seen)s), %(reason)s, %(attempts)s, %(key_hash)s, %(installation_hash)s
)
ON CONFLICT (message_hash) DO UPDATE SET
    reason = excluded.reason,
    attempts = excluded.attempts,
    quarantined_at = now(),
    retried_at = NULL,
    key_hash = coalesce(excluded.key_hash, known.key_hash),
    installation_hash = coalesce(excluded.installation_hash, known.installation_hash)
