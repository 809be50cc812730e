-- name: of_user
-- No index has pseudonyms: the time chooses pages of partitions, which are read.
SELECT trace_id, min(time) FROM delivery_events
WHERE time BETWEEN %(since)s AND %(until)s AND key_pseudonym = ANY (%(pseudonyms)b) AND trace_id IS NOT NULL
GROUP BY trace_id ORDER BY min(time) LIMIT %(most)s

-- name: losses
SELECT kind, coalesce(failure, reason, ''), sum(count)::bigint FROM delivery_events
WHERE time BETWEEN %(since)s AND %(until)s
    AND kind IN ('refused', 'filtered', 'admitted', 'delivered', 'failed', 'unknown', 'expired', 'dead_letter')
GROUP BY 1, 2 ORDER BY 3 DESC
