-- name: count
INSERT INTO app_token_trials AS stored (app, platform, period, slot, tried, bad)
SELECT app, platform, to_timestamp(floor(extract(epoch FROM now()) / %(period)s) * %(period)s),
    pg_backend_pid() %% %(slots)s, tried, bad
FROM unnest(%(app)b::text[], %(platform)b::smallint[], %(tried)b::int[], %(bad)b::int[])
    AS new (app, platform, tried, bad)
ORDER BY app, platform
ON CONFLICT (app, platform, period, slot)
DO UPDATE SET tried = stored.tried + excluded.tried, bad = stored.bad + excluded.bad

-- name: shares
SELECT app, platform, coalesce(sum(tried), 0)::bigint, coalesce(sum(bad), 0)::bigint,
    coalesce(sum(tried) FILTER (WHERE period > now() - %(recent)s * interval '1 second'), 0)::bigint,
    coalesce(sum(bad) FILTER (WHERE period > now() - %(recent)s * interval '1 second'), 0)::bigint
FROM app_token_trials
WHERE period > now() - %(window)s * interval '1 second'
GROUP BY app, platform
