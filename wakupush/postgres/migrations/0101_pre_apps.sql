-- One server pushes to several apps. Rows without a name are of a server that does not tell apps apart, or were written
-- before it did.
ALTER TABLE registrations ADD COLUMN app text NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN app text NOT NULL DEFAULT '';
ALTER TABLE delivery_events ADD COLUMN app text;

-- The apps and platforms of unfinished deliveries, also of apps that are not in the settings any more. It steps from one
-- to the next by the indexes, however many deliveries each has.
CREATE VIEW unfinished_deliveries AS
WITH RECURSIVE pending AS (
    (SELECT app, platform FROM deliveries WHERE state = 'pending' ORDER BY app, platform LIMIT 1)
    UNION ALL
    SELECT next.app, next.platform FROM pending, LATERAL (
        SELECT app, platform FROM deliveries
        WHERE state = 'pending' AND (app, platform) > (pending.app, pending.platform)
        ORDER BY app, platform LIMIT 1
    ) AS next
), posting AS (
    (SELECT app, platform FROM deliveries WHERE state = 'posting' ORDER BY app, platform LIMIT 1)
    UNION ALL
    SELECT next.app, next.platform FROM posting, LATERAL (
        SELECT app, platform FROM deliveries
        WHERE state = 'posting' AND (app, platform) > (posting.app, posting.platform)
        ORDER BY app, platform LIMIT 1
    ) AS next
)
TABLE pending UNION TABLE posting;

-- How many tokens were tried, and how many were bad, by ten minutes. The slot keeps workers out of each other's way.
CREATE TABLE app_token_trials (
    app text NOT NULL,
    platform smallint NOT NULL,
    period timestamptz NOT NULL,
    slot smallint NOT NULL,
    tried integer NOT NULL,
    bad integer NOT NULL,
    PRIMARY KEY (app, platform, period, slot)
);
INSERT INTO app_token_trials SELECT '', platform, period, slot, tried, bad FROM token_trials;

CREATE OR REPLACE VIEW delivery_history AS
SELECT event.id, part.step, event.time, event.transaction_id, event.schema_version, part.kind, event.queue, part.queue_wait, event.latency,
    CASE WHEN part.is_plain THEN NULL ELSE event.platform END AS platform,
    CASE WHEN part.is_plain THEN NULL ELSE event.failure END AS failure,
    CASE WHEN part.is_plain THEN NULL ELSE event.reason END AS reason,
    event.attempt, event.batch_size, event.worker, event.trace_id,
    CASE WHEN part.is_plain THEN NULL ELSE event.key_pseudonym END AS key_pseudonym,
    CASE WHEN part.is_plain THEN NULL ELSE event.installation_pseudonym END AS installation_pseudonym,
    event.count,
    CASE WHEN part.is_plain THEN NULL ELSE event.app END AS app
FROM delivery_events AS event
CROSS JOIN LATERAL (
    SELECT 3 AS step, event.kind,
        CASE WHEN event.schema_version < 3 OR event.kind = 'received' THEN event.queue_wait END AS queue_wait,
        false AS is_plain
    UNION ALL
    SELECT 1, 'received', event.queue_wait, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind <> 'received'
    UNION ALL
    SELECT 2, 'opened', NULL, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind <> 'received'
    UNION ALL
    SELECT 4, 'answered', NULL, true
    WHERE event.schema_version >= 3 AND event.queue_wait IS NOT NULL AND event.kind IN ('registered', 'unregistered')
    UNION ALL
    SELECT 2, 'attempt', NULL, false
    WHERE event.schema_version >= 3 AND event.batch_size IS NOT NULL AND event.kind IN ('delivered', 'unknown', 'failed')
) AS part;
