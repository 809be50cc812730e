-- The pipeline's jobs over the lake, which use its catalog, and note when they ended: who reads the lake may also replace
-- it.

GRANT USAGE ON SCHEMA wakupush_lake TO wakupush_lake;
GRANT SELECT, INSERT, UPDATE, DELETE ON wakupush_lake.iceberg_namespace_properties TO wakupush_lake;
GRANT SELECT, INSERT, UPDATE, DELETE ON wakupush_lake.iceberg_tables TO wakupush_lake;
GRANT SELECT (job, seconds), INSERT (job, seconds), UPDATE (ended_at, seconds) ON pipeline_runs TO wakupush_lake;
