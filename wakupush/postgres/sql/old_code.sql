-- name: newest_post
SELECT max(name) FROM schema_migrations WHERE strpos(name, '_post_') > 0
