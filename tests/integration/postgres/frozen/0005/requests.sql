-- name: admitted
SELECT message_id, succeeded FROM admitted_requests WHERE message_id = ANY (%(ids)b)

-- name: admit
INSERT INTO admitted_requests (message_id, succeeded)
SELECT * FROM unnest(%(id)b::bytea[], %(succeeded)s::text[]) AS new (id, succeeded)
ORDER BY id
ON CONFLICT (message_id) DO UPDATE SET succeeded = excluded.succeeded
