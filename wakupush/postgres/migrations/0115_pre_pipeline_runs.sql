-- When each job of the pipeline last ended well, for the exporter.
CREATE TABLE pipeline_runs (
    job text PRIMARY KEY,
    ended_at timestamptz NOT NULL DEFAULT now(),
    seconds double precision NOT NULL
);
