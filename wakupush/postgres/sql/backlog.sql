-- Each count reads an index no further than the limit.
-- name: waiting
SELECT
    app,
    platform,
    (
        SELECT count(*) FROM (
            SELECT FROM deliveries WHERE state = 'pending' AND deliveries.app = each.app AND deliveries.platform = each.platform LIMIT %(most)s
        ) AS limited
    ),
    (
        SELECT count(*) FROM (
            SELECT FROM deliveries
            WHERE state = 'pending' AND deliveries.app = each.app AND deliveries.platform = each.platform AND next_attempt_at <= now()
            ORDER BY next_attempt_at LIMIT %(most)s
        ) AS limited
    ),
    (
        SELECT COALESCE(extract(epoch FROM now() - min(next_attempt_at)), 0)::float8
        FROM deliveries WHERE state = 'pending' AND deliveries.app = each.app AND deliveries.platform = each.platform AND next_attempt_at <= now()
    ),
    (
        SELECT count(*) FROM (
            SELECT FROM deliveries WHERE state = 'posting' AND deliveries.app = each.app AND deliveries.platform = each.platform LIMIT %(most)s
        ) AS limited
    )
FROM (
    SELECT app, platform FROM unnest(%(apps)b::text[], %(platforms)b::smallint[]) AS settings (app, platform)
    UNION
    TABLE unfinished_deliveries
) AS each

-- name: export
SELECT
    COALESCE(extract(epoch FROM now() - (
        SELECT time FROM delivery_events
        WHERE delivery_events.transaction_id > event_export.transaction_id
        ORDER BY delivery_events.transaction_id LIMIT 1
    )), 0)::float8,
    (
        SELECT count(*) FROM (
            SELECT FROM delivery_events
            WHERE delivery_events.transaction_id > event_export.transaction_id LIMIT %(most)s
        ) AS limited
    )
FROM event_export

-- name: pipeline_runs
SELECT job, extract(epoch FROM ended_at)::float8, seconds FROM pipeline_runs
