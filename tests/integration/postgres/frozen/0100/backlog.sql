-- Each count reads an index no further than the limit.
-- name: waiting
SELECT
    platform,
    (
        SELECT count(*) FROM (
            SELECT FROM deliveries WHERE state = 'pending' AND deliveries.platform = each.platform LIMIT %(most)s
        ) AS limited
    ),
    (
        SELECT count(*) FROM (
            SELECT FROM deliveries
            WHERE state = 'pending' AND deliveries.platform = each.platform AND next_attempt_at <= now()
            ORDER BY next_attempt_at LIMIT %(most)s
        ) AS limited
    ),
    (
        SELECT COALESCE(extract(epoch FROM now() - min(next_attempt_at)), 0)::float8
        FROM deliveries WHERE state = 'pending' AND deliveries.platform = each.platform AND next_attempt_at <= now()
    ),
    (
        SELECT count(*) FROM (
            SELECT FROM deliveries WHERE state = 'posting' AND deliveries.platform = each.platform LIMIT %(most)s
        ) AS limited
    )
FROM unnest(%(platforms)s::smallint[]) AS each (platform)
