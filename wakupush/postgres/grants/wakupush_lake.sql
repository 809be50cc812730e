-- The pipeline's jobs over the lake, which use its catalog and nothing else: who reads the lake may also replace it.

GRANT USAGE ON SCHEMA wakupush_lake TO wakupush_lake;
GRANT SELECT, INSERT, UPDATE, DELETE ON wakupush_lake.iceberg_namespace_properties TO wakupush_lake;
GRANT SELECT, INSERT, UPDATE, DELETE ON wakupush_lake.iceberg_tables TO wakupush_lake;
