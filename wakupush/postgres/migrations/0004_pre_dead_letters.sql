-- What operators list and send again, newest end first; the second index also finds those of one reason, and counts.
CREATE INDEX deliveries_dead_letters ON deliveries (finished_at, delivery_key)
    WHERE state IN ('dead_letter', 'expired');
CREATE INDEX deliveries_dead_letters_reason ON deliveries (failure, finished_at, delivery_key) INCLUDE (platform)
    WHERE state IN ('dead_letter', 'expired');

-- What gorush's feedback webhook says of the attempt under way, or of one that read as delivered.
ALTER TABLE deliveries
    ADD COLUMN feedback text,
    -- From when on the schedule enqueues what was told of a delivery that had read as delivered.
    ADD COLUMN feedback_due_at timestamptz;
CREATE INDEX deliveries_feedback ON deliveries (feedback_due_at) WHERE state = 'delivered' AND feedback IS NOT NULL;

-- When the platform doubted the device token of this version, within the last day; empty again after a success.
ALTER TABLE registrations ADD COLUMN suspected_at timestamptz[];

-- How many tokens were tried, and how many were bad, by ten minutes. The slot keeps workers out of each other's way.
CREATE TABLE token_trials (
    platform smallint NOT NULL,
    period timestamptz NOT NULL,
    slot smallint NOT NULL,
    tried integer NOT NULL,
    bad integer NOT NULL,
    PRIMARY KEY (platform, period, slot)
);
