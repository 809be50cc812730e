{{/*
The processes, in one table: what a process is. What an operator chooses for it is in .Values.components.

  args       of `wakupush`; what has none serves no probes and metrics
  key        whether it holds the private key
  pool       whether it is a pool of workers, which has processes and is scaled if .Values.components has its autoscaling
  feedback   whether it holds the secret that it shares with gorush
  canary     whether workers post to it what is for its own devices
  reaches    the parts that its network policy lets it reach; the secrets of redis and postgres follow from them
  postgres   which of .Values.secrets connects it to Postgres as its own role
  redis      which of .Values.secrets connects it to Redis as its own user
*/}}
{{- define "wakupush.components" -}}
ingest:
  args: [ingest, live]
  reaches: [redis, node]
  redis: redisIngest
reconcile:
  args: [ingest, reconcile]
  reaches: [redis, node, postgres]
  redis: redisReconcile
  postgres: postgresReconcile
registration:
  args: [worker, registration]
  key: true
  pool: true
  reaches: [redis, node, postgres]
  redis: redisWorker
  postgres: postgresRegistration
query:
  args: [worker, query]
  key: true
  pool: true
  reaches: [redis, node, postgres]
  redis: redisWorker
  postgres: postgresQuery
dispatch:
  args: [worker, dispatch]
  key: true
  pool: true
  reaches: [redis, node, postgres, gorush]
  redis: redisWorker
  postgres: postgresDispatch
rest:
  args: [worker, rest]
  key: true
  pool: true
  reaches: [redis, node, postgres, gorush]
  redis: redisWorker
  postgres: postgresRest
beat:
  args: [beat]
  reaches: [redis, node, postgres]
  redis: redisBeat
  postgres: postgresSchedule
feedback:
  args: [feedback]
  feedback: true
  reaches: [postgres]
  postgres: postgresFeedback
exporter:
  args: [exporter]
  reaches: [redis, postgres]
  redis: redisExporter
  postgres: postgresExporter
canary:
  args: [canary]
  canary: true
  reaches: [node]
flower:
  reaches: [redis]
  redis: redisFlower
{{- end }}

{{/* The jobs: the migration, the test of `helm test`, the pipeline's jobs, and Spark's executors. */}}
{{- define "wakupush.jobs" -}}
migrate:
  reaches: [postgres]
doctor:
  reaches: [redis, node, postgres, gorush]
  redis: redisOperator
  postgres: postgresOperator
{{- if .Values.pipeline.jobs }}
{{- $args := list }}
{{- range .Values.pipeline.jobs }}
{{- $args = concat $args .args }}
{{- end }}
pipeline:
  reaches: {{ ternary "[postgres, node]" "[postgres]" (has "fetch-archive" $args) }}
{{- if .Values.pipeline.executors.count }}
executor:
  reaches: [postgres]
{{- end }}
{{- end }}
{{- end }}

{{/* Which of .Values.pipeline.volumes and of .Values.secrets a command of the pipeline uses. Only the command that makes
     pseudonyms gets their keys. "local" is what does not use Spark. */}}
{{- define "wakupush.pipelineCommands" -}}
export: { volumes: [lake, keys], secrets: [pipeline, lakeCatalog] }
tidy: { volumes: [lake], secrets: [postgresLake, lakeCatalog] }
report: { volumes: [lake, reports], secrets: [postgresLake, reports, lakeCatalog] }
capacity: { volumes: [lake], secrets: [postgresLake, lakeCatalog] }
fetch-archive: { volumes: [archive], secrets: [], local: true }
warm-topics: { volumes: [], secrets: [postgresRebuild] }
{{- end }}

{{/* What a job of the pipeline uses, as JSON: the row of its command; any other command has the secrets of export and
     report, and no volume. Argument: its args. */}}
{{- define "wakupush.pipelineNeeds" -}}
{{- $args := . -}}
{{- $needed := dict "volumes" list "secrets" (list "pipeline" "reports" "lakeCatalog") -}}
{{- range $command, $row := include "wakupush.pipelineCommands" . | fromYaml -}}
{{- if has $command $args -}}
{{- $needed = $row -}}
{{- end -}}
{{- end -}}
{{- toJson $needed -}}
{{- end }}
