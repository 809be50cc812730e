-- name: add
INSERT INTO ledger (message_hash, message_timestamp)
SELECT * FROM unnest(%(hashes)b::bytea[], %(timestamps)s::bigint[])
ON CONFLICT DO NOTHING
RETURNING message_hash

-- name: known
SELECT message_hash FROM ledger WHERE message_hash = ANY (%(hashes)b)

-- name: attempts
SELECT message_hash, attempts FROM message_attempts WHERE message_hash = ANY (%(hashes)b)

-- name: count_attempt
INSERT INTO message_attempts AS counted (message_hash, attempts) VALUES (%(hash)s, 1)
ON CONFLICT (message_hash) DO UPDATE SET attempts = counted.attempts + 1, updated_at = now()

-- name: refund_attempt
UPDATE message_attempts SET attempts = attempts - 1 WHERE message_hash = %(hash)s AND attempts > 0

-- name: forget_attempts
DELETE FROM message_attempts WHERE message_hash = %(hash)s

-- name: quarantine
INSERT INTO quarantine (
    message_hash, queue, pubsub_topic, content_topic, payload, message_timestamp, meta, seen_at, reason, attempts,
    key_hash, installation_hash
) VALUES (
    %(hash)s, %(queue)s, %(pubsub_topic)s, %(content_topic)s, %(payload)s, %(timestamp)s, %(meta)s,
    to_timestamp(%(seen)s), %(reason)s, %(attempts)s, %(key_hash)s, %(installation_hash)s
)
ON CONFLICT DO NOTHING
