-- name: count
-- Each count reads the index of dead tokens no further than the limit, the latest deaths first.
SELECT app, token_type, count(*), count(*) FILTER (WHERE token_died_at > now() - interval '1 hour')
FROM (
    SELECT app, token_type, token_died_at FROM registrations
    WHERE token_died_at > now() - interval '1 day'
    ORDER BY token_died_at DESC LIMIT %(most)s
) AS lately
GROUP BY app, token_type

-- name: revive
-- The oldest deaths first: the next call goes on, as what was revived is dead no more.
WITH chosen AS MATERIALIZED (
    SELECT key_hash, installation_hash FROM registrations
    WHERE token_died_at BETWEEN %(since)s AND %(until)s
        AND token_type = ANY (%(platforms)s) AND app = ANY (%(apps)s)
    ORDER BY token_died_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE registrations SET token_died_at = NULL
FROM chosen
WHERE registrations.key_hash = chosen.key_hash
    AND registrations.installation_hash = chosen.installation_hash
RETURNING 1

-- name: forget_trials
DELETE FROM app_token_trials WHERE platform = ANY (%(platforms)s) AND app = ANY (%(apps)s)
