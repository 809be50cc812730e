-- name: count
INSERT INTO token_trials AS known (platform, period, slot, tried, bad)
SELECT platform, to_timestamp(floor(extract(epoch FROM now()) / %(period)s) * %(period)s),
    pg_backend_pid() %% %(slots)s, tried, bad
FROM unnest(%(platform)s::smallint[], %(tried)s::int[], %(bad)s::int[]) AS new (platform, tried, bad)
ORDER BY platform
ON CONFLICT (platform, period, slot) DO UPDATE SET tried = known.tried + excluded.tried, bad = known.bad + excluded.bad

-- name: shares
SELECT platform, coalesce(sum(tried), 0)::bigint, coalesce(sum(bad), 0)::bigint,
    coalesce(sum(tried) FILTER (WHERE period > now() - %(recent)s * interval '1 second'), 0)::bigint,
    coalesce(sum(bad) FILTER (WHERE period > now() - %(recent)s * interval '1 second'), 0)::bigint
FROM token_trials
WHERE period > now() - %(window)s * interval '1 second'
GROUP BY platform
