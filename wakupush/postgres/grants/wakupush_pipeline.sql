-- The pipeline's export, which reads the events and writes the lake. It needs no registration.

GRANT SELECT ON delivery_history TO wakupush_pipeline;
GRANT SELECT (is_only, transaction_id), INSERT (transaction_id), UPDATE (transaction_id, exported_at) ON event_export TO wakupush_pipeline;
GRANT USAGE ON SCHEMA wakupush_lake TO wakupush_pipeline;
GRANT SELECT, INSERT, UPDATE, DELETE ON wakupush_lake.iceberg_namespace_properties TO wakupush_pipeline;
GRANT SELECT, INSERT, UPDATE, DELETE ON wakupush_lake.iceberg_tables TO wakupush_pipeline;
GRANT SELECT (job, seconds), INSERT (job, seconds), UPDATE (ended_at, seconds) ON pipeline_runs TO wakupush_pipeline;
