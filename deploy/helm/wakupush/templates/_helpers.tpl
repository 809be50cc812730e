{{- define "wakupush.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Labels by which pods are selected: (dict "root" $ "component" NAME). */}}
{{- define "wakupush.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "wakupush.labels" -}}
{{ include "wakupush.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The account of all processes. */}}
{{- define "wakupush.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "wakupush.fullname" .) }}
{{- end }}

{{/* An image by the name that the values have: (dict "root" $ "name" NAME). The registry takes the place of the one in the name. */}}
{{- define "wakupush.mirrored" -}}
{{- $registry := .root.Values.global.imageRegistry -}}
{{- $first := first (splitList "/" .name) -}}
{{- if not $registry -}}
{{ .name }}
{{- else if and (contains "/" .name) (or (contains "." $first) (contains ":" $first)) -}}
{{ $registry }}/{{ trimPrefix (printf "%s/" $first) .name }}
{{- else -}}
{{ $registry }}/{{ .name }}
{{- end -}}
{{- end }}

{{- define "wakupush.storageClass" -}}
{{- with .Values.global.storageClass }}
storageClassName: {{ . }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "image" VALUES) */}}
{{- define "wakupush.image" -}}
{{- $repository := include "wakupush.mirrored" (dict "root" .root "name" .image.repository) -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "wakupush.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The restricted pod security standard: (dict "root" $ "uid" UID). */}}
{{- define "wakupush.podSecurity" -}}
runAsNonRoot: true
{{- if .root.Values.pod.fixedUser }}
runAsUser: {{ .uid }}
runAsGroup: {{ .uid }}
fsGroup: {{ .uid }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "wakupush.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end }}

{{/* An environment variable out of a Secret: (dict "name" VARIABLE "secret" VALUES). */}}
{{- define "wakupush.fromSecret" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret.name }}
      key: {{ .secret.key }}
{{- end }}

{{/* One of .Values.secrets, as YAML with its name and key: (dict "root" $ "name" NAME). The key of a role in Postgres depends on how
     processes connect. */}}
{{- define "wakupush.secret" -}}
{{- $secret := index .root.Values.secrets .name -}}
{{- $suffix := ternary "dsn" "password" (eq .root.Values.postgres.connectBy "connectionStrings") -}}
{{- $key := $secret.key -}}
{{- if include "wakupush.role" .name -}}
{{- $key = $key | default (printf "postgres-%s-%s" (include "wakupush.role" .name) $suffix) -}}
{{- end -}}
{{ toYaml (dict "name" $secret.name "key" $key) }}
{{- end }}

{{/* The role in Postgres, without its prefix, that one of .Values.secrets is of, or nothing. Argument: its name. */}}
{{- define "wakupush.role" -}}
{{- if eq . "pipeline" -}}
pipeline
{{- else if and (hasPrefix "postgres" .) (not (has . (list "postgres" "postgresHost" "postgresUser" "postgresPassword"))) -}}
{{ . | trimPrefix "postgres" | lower }}
{{- end -}}
{{- end }}

{{/* Whether each process connects to Redis as its own user. */}}
{{- define "wakupush.redisUsers" -}}
{{- if or .Values.redis.bundled.enabled .Values.redis.url -}}
true
{{- end -}}
{{- end }}

{{/* Whether KEDA asks Redis. It asks no trigger while it cannot connect to Redis for one of them, and takes no fallback either. */}}
{{- define "wakupush.kedaAsksRedis" -}}
{{- $redis := .Values.autoscaling.redis -}}
{{- $somewhere := or .Values.redis.bundled.enabled $redis.address (and $redis.sentinelMaster .Values.redis.sentinel.addresses) -}}
{{- if and (eq .Values.autoscaling.mode "keda") $somewhere (or (not .Values.autoscaling.prometheus.serverAddress) $redis.besidePrometheus) -}}
true
{{- end -}}
{{- end }}

{{/* The URL of Redis: (dict "root" $ "variable" VARIABLE "own" NAME), the name one of .Values.secrets. */}}
{{- define "wakupush.redisEnvironment" -}}
{{- with .root -}}
{{- if include "wakupush.redisUsers" . -}}
{{ include "wakupush.fromSecret" (dict "name" "REDIS_PASSWORD" "secret" (index .Values.secrets $.own)) }}
- name: {{ $.variable }}
{{- $url := .Values.redis.url | default (printf "redis://%s-redis:6379/0" (include "wakupush.fullname" .)) }}
  value: {{ $url | replace "://" (printf "://%s:$(REDIS_PASSWORD)@" ($.own | trimPrefix "redis" | lower)) }}
{{- else -}}
{{ include "wakupush.fromSecret" (dict "name" $.variable "secret" .Values.secrets.redis) }}
{{- end }}
{{- if .Values.redis.sentinel.addresses }}
- name: WAKUPUSH_REDIS__SENTINELS
  value: {{ toJson .Values.redis.sentinel.addresses | quote }}
{{- with .Values.redis.sentinel.user }}
- name: WAKUPUSH_REDIS__SENTINEL_USER
  value: {{ . | quote }}
{{- end }}
{{- if .Values.redis.sentinel.passwordSecret.name }}
{{ include "wakupush.fromSecret" (dict "name" "WAKUPUSH_REDIS__SENTINEL_PASSWORD" "secret" .Values.redis.sentinel.passwordSecret) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The connection string of Postgres: (dict "root" $ "own" NAME), the name one of .Values.secrets, or empty for the owner. */}}
{{- define "wakupush.postgresEnvironment" -}}
{{- $postgres := .root.Values.postgres -}}
{{- $role := ternary "" .own (eq $postgres.connectBy "owner") -}}
{{- $place := printf ":%v/%s" (int $postgres.port) $postgres.database -}}
{{- with $postgres.parameters }}{{ $place = printf "%s?%s" $place . }}{{ end -}}
{{- with .root -}}
{{- if and $role (eq $postgres.connectBy "connectionStrings") -}}
{{ include "wakupush.fromSecret" (dict "name" "WAKUPUSH_POSTGRES__DSN" "secret" (include "wakupush.secret" (dict "root" . "name" $role) | fromYaml)) }}
{{- else if $role -}}
{{- $host := "$(POSTGRES_HOST)" -}}
{{- if $postgres.bundled.enabled -}}
{{- $host = printf "%s-postgres" (include "wakupush.fullname" .) -}}
{{- $place = ":5432/wakupush" -}}
{{- else -}}
{{ include "wakupush.fromSecret" (dict "name" "POSTGRES_HOST" "secret" .Values.secrets.postgresHost) }}
{{ end -}}
{{ include "wakupush.fromSecret" (dict "name" "POSTGRES_PASSWORD" "secret" (include "wakupush.secret" (dict "root" . "name" $role) | fromYaml)) }}
- name: WAKUPUSH_POSTGRES__DSN
  value: postgresql://wakupush_{{ include "wakupush.role" $role }}:$(POSTGRES_PASSWORD)@{{ $host }}{{ $place }}
{{- else if $postgres.bundled.enabled -}}
{{ include "wakupush.fromSecret" (dict "name" "POSTGRES_PASSWORD" "secret" .Values.secrets.bundledPostgres) }}
- name: WAKUPUSH_POSTGRES__DSN
  value: postgresql://wakupush:$(POSTGRES_PASSWORD)@{{ include "wakupush.fullname" . }}-postgres:5432/wakupush
{{- else if eq $postgres.connectBy "roles" -}}
{{- /* As libpq's own variables: a password that others made may hold any character. */ -}}
{{ include "wakupush.fromSecret" (dict "name" "PGHOST" "secret" .Values.secrets.postgresHost) }}
{{ include "wakupush.fromSecret" (dict "name" "PGUSER" "secret" .Values.secrets.postgresUser) }}
{{ include "wakupush.fromSecret" (dict "name" "PGPASSWORD" "secret" .Values.secrets.postgresPassword) }}
- name: WAKUPUSH_POSTGRES__DSN
  value: postgresql://{{ $place }}
{{- else -}}
{{ include "wakupush.fromSecret" (dict "name" "WAKUPUSH_POSTGRES__DSN" "secret" .Values.secrets.postgres) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The passwords that the migration gives to the roles. */}}
{{- define "wakupush.rolePasswords" -}}
{{- range $name := include "wakupush.neededSecrets" . | fromJsonArray }}
{{- with include "wakupush.role" $name }}
{{ include "wakupush.fromSecret" (dict "name" (printf "POSTGRES_%s_PASSWORD" (upper .)) "secret" (include "wakupush.secret" (dict "root" $ "name" $name) | fromYaml)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The claim of one of the pipeline's volumes: (dict "root" $ "name" VOLUME). */}}
{{- define "wakupush.pipelineClaim" -}}
{{- (index .root.Values.pipeline.volumes .name).existingClaim | default (printf "%s-pipeline-%s" (include "wakupush.fullname" .root) .name) -}}
{{- end }}

{{/* The volumes that a job of the pipeline mounts, as a JSON list: (dict "root" $ "needed" ITS ROW IN pipelineCommands). What is
     in a store needs none. */}}
{{- define "wakupush.pipelineVolumes" -}}
{{- $volumes := .needed.volumes -}}
{{- range $volume, $place := dict "lake" .root.Values.pipeline.warehouse "reports" .root.Values.pipeline.reports -}}
{{- if $place -}}
{{- $volumes = without $volumes $volume -}}
{{- end -}}
{{- end -}}
{{- toJson $volumes -}}
{{- end }}

{{/* Connection strings of a job of the pipeline: to the events, by its role, and to reports.
     Argument: (dict "root" $ "secrets" LIST). */}}
{{- define "wakupush.pipelineEnvironment" -}}
{{- $secrets := .root.Values.secrets }}
{{- range $own := list "pipeline" "postgresLake" "postgresRebuild" }}
{{- if has $own $.secrets }}
{{ include "wakupush.postgresEnvironment" (dict "root" $.root "own" $own) | trim }}
{{- end }}
{{- end }}
{{- if and (has "reports" .secrets) $secrets.reports.key }}
{{ include "wakupush.fromSecret" (dict "name" "WAKUPUSH_PIPELINE__REPORT_DSN" "secret" $secrets.reports) }}
{{- end }}
{{- if and (has "lakeCatalog" .secrets) $secrets.lakeCatalog.key }}
{{ include "wakupush.fromSecret" (dict "name" "WAKUPUSH_PIPELINE__CATALOG" "secret" $secrets.lakeCatalog) }}
{{- end }}
{{- end }}

{{/* URLs of the nodes, as a JSON list. */}}
{{- define "wakupush.nodeUrls" -}}
{{- $urls := .Values.node.urls -}}
{{- if .Values.node.bundled.enabled -}}
{{- $urls = list -}}
{{- range $i := until (int .Values.node.bundled.replicas) -}}
{{- $name := include "wakupush.fullname" $ -}}
{{- $urls = append $urls (printf "http://%s-node-%d.%s-node:8645" $name $i $name) -}}
{{- end -}}
{{- end -}}
{{ toJson $urls }}
{{- end }}

{{- define "wakupush.gorushUrl" -}}
{{- if .Values.gorush.bundled.enabled -}}
http://{{ include "wakupush.fullname" . }}-gorush:8088
{{- else -}}
{{ .Values.gorush.url }}
{{- end -}}
{{- end }}

{{/* The settings of all processes, as variables; no secret is among them. */}}
{{- define "wakupush.settings" -}}
{{- $variables := dict "WAKUPUSH_PUBLIC_KEY" .Values.publicKey "WAKUPUSH_HTTP_PORT" 9100 "WAKUPUSH_FEEDBACK__HTTP_PORT" 9100 -}}
{{- $_ := set $variables "WAKUPUSH_GORUSH__URL" (ternary (toJson .Values.gorush.urls) (include "wakupush.gorushUrl" .) (not (empty .Values.gorush.urls))) -}}
{{- $_ := set $variables "WAKUPUSH_WAKU__URL" (include "wakupush.nodeUrls" .) -}}
{{- if .Values.components.canary.enabled -}}
{{- $_ := set $variables "WAKUPUSH_CANARY__GORUSH_URL" (printf "http://%s-canary:9100" (include "wakupush.fullname" .)) -}}
{{- end -}}
{{- if .Values.previousPublicKeys -}}
{{- $_ := set $variables "WAKUPUSH_PREVIOUS_PUBLIC_KEYS" (toJson .Values.previousPublicKeys) -}}
{{- end -}}
{{- if include "wakupush.settingsFile" . -}}
{{- $_ := set $variables "WAKUPUSH_CONFIG" "/run/settings/settings.toml" -}}
{{- end -}}
{{- range $group, $fields := omit .Values.settings "profiles" "apps" -}}
{{- if kindIs "map" $fields -}}
{{- range $field, $value := $fields -}}
{{- $_ := set $variables (printf "WAKUPUSH_%s__%s" (upper $group) (upper $field)) (include "wakupush.setting" $value) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $variables (printf "WAKUPUSH_%s" (upper $group)) (include "wakupush.setting" $fields) -}}
{{- end -}}
{{- end -}}
{{ toYaml $variables }}
{{- end }}

{{/* The file of settings: what no variable can say. */}}
{{- define "wakupush.settingsFile" -}}
{{- with pick .Values.settings "profiles" "apps" -}}
{{ toToml . }}
{{- end -}}
{{- end }}

{{/* Whole numbers are written as such: Helm reads every number as a float. */}}
{{- define "wakupush.setting" -}}
{{- if kindIs "slice" . -}}
{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end }}

{{/* A setting, a time in seconds, or the program's default: (dict "root" $ "group" G "field" F "default" D). */}}
{{- define "wakupush.settingOr" -}}
{{- $group := index .root.Values.settings .group | default dict -}}
{{- $value := index $group .field | default .default | toString -}}
{{- if regexMatch "^[0-9]+[smhd]$" $value -}}
{{- $units := dict "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- $value = mul (regexFind "^[0-9]+" $value) (index $units (regexFind ".$" $value)) -}}
{{- end -}}
{{- $value -}}
{{- end }}

{{/* The shards, as a JSON list. */}}
{{- define "wakupush.shards" -}}
{{- (index .Values.settings "waku" | default dict).shards | default (list "/waku/2/rs/16/32" "/waku/2/rs/16/64") | toJson -}}
{{- end }}

{{/* Replicas that a Deployment begins with: (dict "root" $ "name" DEPLOYMENT "own" VALUES). One that is scaled keeps those it has, which
     only an installation or upgrade can see; `helm template` sees none. */}}
{{- define "wakupush.replicas" -}}
{{- $isScaled := and .own.autoscaling (ne .root.Values.autoscaling.mode "none") -}}
{{- if and $isScaled (not .root.Values.autoscaling.manageReplicas) -}}
{{- else if $isScaled -}}
{{- $running := dig "spec" "replicas" 0 (lookup "apps/v1" "Deployment" .root.Release.Namespace .name) -}}
{{ max .own.autoscaling.minReplicas $running }}
{{- else -}}
{{ .own.replicas | default 1 }}
{{- end -}}
{{- end }}

{{/* Pods of a component that may be at work at the same time: (dict "root" $ "own" VALUES). An upgrade starts one before it
     ends another, and does not wait until that one has finished its work: all of the old ones may still be at work. */}}
{{- define "wakupush.mostPods" -}}
{{- $replicas := .own.replicas -}}
{{- if and .own.autoscaling (ne .root.Values.autoscaling.mode "none") -}}
{{- $replicas = .own.autoscaling.maxReplicas -}}
{{- end -}}
{{ add (mul 2 $replicas) 1 }}
{{- end }}

{{/* Connections to Postgres that all processes may have open, and some for jobs and operators. */}}
{{- define "wakupush.mostConnections" -}}
{{- $pool := include "wakupush.settingOr" (dict "root" . "group" "postgres" "field" "pool_size" "default" 4) | int -}}
{{- $most := 20 -}}
{{- range $name, $process := include "wakupush.components" . | fromYaml -}}
{{- $own := index $.Values.components $name -}}
{{- if and $own.enabled (has "postgres" $process.reaches) -}}
{{- $pods := include "wakupush.mostPods" (dict "root" $ "own" $own) | int -}}
{{- $most = add $most (mul $pods ($own.concurrency | default 1) $pool) -}}
{{- end -}}
{{- end -}}
{{ $most }}
{{- end }}

{{/* Checks that the schema cannot express. All problems are reported at once, with what to do about them. */}}
{{- define "wakupush.check" -}}
{{- $problems := list -}}
{{- if not .Values.publicKey -}}
{{- $problems = append $problems "publicKey is missing: `wakupush keygen` prints it" -}}
{{- end -}}
{{- range $part, $given := dict "node" .Values.node.urls "gorush" (.Values.gorush.urls | default .Values.gorush.url) -}}
{{- $bundled := (index $.Values $part).bundled.enabled -}}
{{- if and (not $given) (not $bundled) -}}
{{- $problems = append $problems (printf "%s.%s is missing: say where it is, or set %s.bundled.enabled" $part (ternary "urls" "url" (eq $part "node")) $part) -}}
{{- end -}}
{{- if and $given $bundled -}}
{{- $problems = append $problems (printf "%s: an URL and bundled.enabled are both set; which one is meant?" $part) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.devnet.enabled (not (and .Values.node.bundled.enabled .Values.gorush.bundled.enabled (eq (int .Values.node.bundled.replicas) 1))) -}}
{{- $problems = append $problems "devnet.enabled stands for the bundled node, of which there is one, and the bundled gorush: set node.bundled.enabled and gorush.bundled.enabled" -}}
{{- end -}}
{{- $table := include "wakupush.components" . | fromYaml -}}
{{- if .Values.node.bundled.enabled -}}
{{- $clusters := dict -}}
{{- range $shard := include "wakupush.shards" . | fromJsonArray -}}
{{- if regexMatch "^/waku/2/rs/[0-9]+/[0-9]+$" $shard -}}
{{- $_ := set $clusters (index (splitList "/" $shard) 4) true -}}
{{- else -}}
{{- $problems = append $problems (printf "settings.waku.shards: %s is no static shard, /waku/2/rs/CLUSTER/SHARD, as the bundled node needs" $shard) -}}
{{- end -}}
{{- end -}}
{{- if gt (len $clusters) 1 -}}
{{- $problems = append $problems "settings.waku.shards are of several clusters; a node is in one" -}}
{{- end -}}
{{- end -}}
{{- $profile := (index .Values.settings "gorush" | default dict).dialect | default "spec" -}}
{{- if not (or (has $profile (list "spec" "status" "status-2024" "both")) (hasKey (.Values.settings.profiles | default dict) $profile)) -}}
{{- $problems = append $problems (printf "settings.gorush.dialect: there is no profile %s in settings.profiles, and none is built in" $profile) -}}
{{- end -}}
{{- $lease := include "wakupush.settingOr" (dict "root" . "group" "delivery" "field" "lease" "default" 120) | float64 -}}
{{- $post := include "wakupush.settingOr" (dict "root" . "group" "gorush" "field" "timeout" "default" 75) | float64 -}}
{{- $connect := include "wakupush.settingOr" (dict "root" . "group" "gorush" "field" "connect_timeout" "default" 5) | float64 -}}
{{- $tries := ternary 2 1 (gt (len .Values.gorush.urls) 1) -}}
{{- $needed := addf $post (mulf $tries $connect) 25 -}}
{{- if lt $lease $needed -}}
{{- $problems = append $problems (printf "settings.delivery.lease must be at least %v (gorush.timeout, gorush.connect_timeout for each try, and 25 for what comes before and after the post), or pushes double" $needed) -}}
{{- end -}}
{{- range $name, $component := .Values.components -}}
{{- if and (index $table $name).pool $component.enabled -}}
{{- $needed := ternary (addf $lease 30) 100.0 (has $name (list "dispatch" "rest")) -}}
{{- if lt (float64 $component.terminationGracePeriodSeconds) (float64 $needed) -}}
{{- $problems = append $problems (printf "components.%s.terminationGracePeriodSeconds must be at least %v, or pods are killed in the middle of their work" $name $needed) -}}
{{- end -}}
{{- if and $component.autoscaling (ne $.Values.autoscaling.mode "none") -}}
{{- if gt (int $component.autoscaling.minReplicas) (int $component.autoscaling.maxReplicas) -}}
{{- $problems = append $problems (printf "components.%s.autoscaling: minReplicas is above maxReplicas" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $posts := include "wakupush.settingOr" (dict "root" . "group" "gorush" "field" "concurrency" "default" 16) | int -}}
{{- $batch := include "wakupush.settingOr" (dict "root" . "group" "gorush" "field" "batch_size" "default" 64) | int -}}
{{- $processes := 0 -}}
{{- range list .Values.components.dispatch .Values.components.rest -}}
{{- if .enabled -}}
{{- $processes = add $processes (mul (include "wakupush.mostPods" (dict "root" $ "own" .) | int) .concurrency) -}}
{{- end -}}
{{- end -}}
{{- $atOnce := mul $processes $posts $batch -}}
{{- if gt $atOnce (int64 .Values.gorush.queueNum) -}}
{{- $problems = append $problems (printf "components.dispatch, components.rest: %d processes (with those of pods that end) x %d posts x %d notifications are %d, above gorush.queueNum (%v); gorush would never answer. Lower one of them, or raise gorush.queueNum, and core.queue_num of a gorush of your own with it" $processes $posts $batch $atOnce .Values.gorush.queueNum) -}}
{{- end -}}
{{- if and (eq .Values.autoscaling.mode "keda") (not .Values.autoscaling.prometheus.serverAddress) (not .Values.autoscaling.redis.address) (not .Values.autoscaling.redis.sentinelMaster) (not .Values.redis.bundled.enabled) -}}
{{- $problems = append $problems "autoscaling.mode is keda, which needs autoscaling.prometheus.serverAddress, or autoscaling.redis.address or sentinelMaster" -}}
{{- end -}}
{{- if and .Values.redis.sentinel.addresses .Values.redis.bundled.enabled -}}
{{- $problems = append $problems "redis: sentinel.addresses and bundled.enabled are both set; which one is meant?" -}}
{{- end -}}
{{- if and .Values.autoscaling.redis.sentinelMaster (not .Values.redis.sentinel.addresses) -}}
{{- $problems = append $problems "autoscaling.redis.sentinelMaster is set, and redis.sentinel.addresses is missing" -}}
{{- end -}}
{{- if and (eq .Values.autoscaling.mode "keda") .Values.autoscaling.prometheus.serverAddress (not .Values.components.exporter.enabled) -}}
{{- $problems = append $problems "components.exporter.enabled is false, and autoscaling asks Prometheus for its figures" -}}
{{- end -}}
{{- if .Values.externalSecrets.enabled -}}
{{- if not .Values.externalSecrets.store.name -}}
{{- $problems = append $problems "externalSecrets.store.name is missing" -}}
{{- end -}}
{{- range $name := include "wakupush.neededSecrets" . | fromJsonArray -}}
{{- if not (index $.Values.externalSecrets.remote $name) -}}
{{- $problems = append $problems (printf "externalSecrets.remote.%s is missing" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.pipeline.jobs (not .Values.pipeline.image) -}}
{{- $problems = append $problems "pipeline.image is missing: the jobs need Spark" -}}
{{- end -}}
{{- if and .Values.pipeline.jobs .Values.pipeline.executors.count (not .Values.pipeline.warehouse) -}}
{{- $problems = append $problems "pipeline.warehouse is missing: pipeline.executors have no volume, so the lake has to be in a store" -}}
{{- end -}}
{{- if and .Values.pipeline.reports (not .Values.pipeline.warehouse) -}}
{{- $problems = append $problems "pipeline.warehouse is missing: reports can be in a store only if the lake is" -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nwakupush cannot be installed like this:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end }}

{{/* Which of .Values.secrets are read, as a JSON list. */}}
{{- define "wakupush.neededSecrets" -}}
{{- $names := list "identity" -}}
{{- if .Values.postgres.bundled.enabled -}}
{{- $names = append $names "bundledPostgres" -}}
{{- else if eq .Values.postgres.connectBy "roles" -}}
{{- $names = concat $names (list "postgresHost" "postgresUser" "postgresPassword") -}}
{{- else -}}
{{- $names = append $names "postgres" -}}
{{- end -}}
{{- if .Values.redis.bundled.enabled -}}
{{- $names = append $names "bundledRedis" -}}
{{- else if not .Values.redis.url -}}
{{- $names = append $names "redis" -}}
{{- end -}}
{{- if and (include "wakupush.redisUsers" .) (include "wakupush.kedaAsksRedis" .) -}}
{{- $names = append $names "redisKeda" -}}
{{- end -}}
{{- if .Values.components.feedback.enabled -}}
{{- $names = append $names "feedback" -}}
{{- end -}}
{{- if .Values.components.flower.enabled -}}
{{- $names = append $names "flower" -}}
{{- end -}}
{{- range $name, $process := merge (include "wakupush.components" . | fromYaml) (include "wakupush.jobs" . | fromYaml) -}}
{{- $own := index $.Values.components $name | default dict -}}
{{- if dig "enabled" true $own -}}
{{- if and $process.postgres (ne $.Values.postgres.connectBy "owner") -}}
{{- $names = append $names $process.postgres -}}
{{- end -}}
{{- if and $process.redis (include "wakupush.redisUsers" $) -}}
{{- $names = append $names $process.redis -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $job := .Values.pipeline.jobs -}}
{{- range $name := (include "wakupush.pipelineNeeds" $job.args | fromJson).secrets -}}
{{- if ternary (ne $.Values.postgres.connectBy "owner") (not (empty (index $.Values.secrets $name).key)) (not (empty (include "wakupush.role" $name))) -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson (uniq $names) }}
{{- end }}
