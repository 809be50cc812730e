-- name: connections
SELECT current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
    - coalesce(current_setting('reserved_connections', true), '0')::integer

-- name: use
SELECT sum(numbackends)::integer, pg_database_size(current_database()) FROM pg_stat_database

-- name: absent_timeouts
SELECT name FROM unnest(ARRAY['statement_timeout', 'lock_timeout']) AS name WHERE current_setting(name) = '0'
