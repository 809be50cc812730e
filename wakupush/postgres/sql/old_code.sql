-- name: gone
SELECT FROM schema_migrations WHERE name = %(migration)s
