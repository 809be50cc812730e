-- name: admitted
SELECT message_id, succeeded FROM admitted_requests WHERE message_id = ANY (%(ids)s)

-- name: admit
INSERT INTO admitted_requests (message_id, succeeded) VALUES (%(id)s, %(succeeded)s)
ON CONFLICT (message_id) DO UPDATE SET succeeded = excluded.succeeded
