-- name: admitted
SELECT message_id, succeeded FROM admitted_requests WHERE message_id = ANY (%(ids)s)

-- name: admit
INSERT INTO admitted_requests (message_id, succeeded)
SELECT * FROM unnest(%(id)s::bytea[], %(succeeded)s::text[]) AS new (id, succeeded)
ORDER BY id
ON CONFLICT (message_id) DO UPDATE SET succeeded = excluded.succeeded
