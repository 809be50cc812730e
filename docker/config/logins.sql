-- Let the role of each process log in, with a password of its own. Compose runs it with psql after each migration, which
-- makes the roles and what they may do.
\set ON_ERROR_STOP on

\getenv password POSTGRES_REGISTRATION_PASSWORD
ALTER ROLE wakupush_registration LOGIN PASSWORD :'password';

\getenv password POSTGRES_QUERY_PASSWORD
ALTER ROLE wakupush_query LOGIN PASSWORD :'password';

\getenv password POSTGRES_DISPATCH_PASSWORD
ALTER ROLE wakupush_dispatch LOGIN PASSWORD :'password';

\getenv password POSTGRES_SCHEDULE_PASSWORD
ALTER ROLE wakupush_schedule LOGIN PASSWORD :'password';

\getenv password POSTGRES_RECONCILE_PASSWORD
ALTER ROLE wakupush_reconcile LOGIN PASSWORD :'password';

\getenv password POSTGRES_EXPORTER_PASSWORD
ALTER ROLE wakupush_exporter LOGIN PASSWORD :'password';

\getenv password POSTGRES_FEEDBACK_PASSWORD
ALTER ROLE wakupush_feedback LOGIN PASSWORD :'password';

\getenv password POSTGRES_OPERATOR_PASSWORD
ALTER ROLE wakupush_operator LOGIN PASSWORD :'password';

\getenv password POSTGRES_PIPELINE_PASSWORD
ALTER ROLE wakupush_pipeline LOGIN PASSWORD :'password';
