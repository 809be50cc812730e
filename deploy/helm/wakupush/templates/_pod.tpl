{{/* Where a pod runs and beside whom: (dict "root" $ "component" NAME "own" VALUES "asksKubernetes" BOOLEAN). The last says
     whether it gets a token for the Kubernetes API. */}}
{{- define "wakupush.scheduling" -}}
{{- $pod := include "wakupush.podValues" . | fromYaml -}}
automountServiceAccountToken: {{ .asksKubernetes | default false }}
enableServiceLinks: false
{{- include "wakupush.pullSecrets" .root }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "wakupush.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{/* The values of a pod, of the component itself or of all: (dict "root" $ "own" VALUES). */}}
{{- define "wakupush.podValues" -}}
{{- $pod := dict -}}
{{- range $name, $value := .root.Values.pod -}}
{{- $_ := set $pod $name (index ($.own.pod | default dict) $name | default $value) -}}
{{- end -}}
{{ toYaml $pod }}
{{- end }}

{{/* A probe of ours: (dict "path" PATH "times" DEFAULTS "own" VALUES). */}}
{{- define "wakupush.probe" -}}
httpGet: { path: {{ .path }}, port: http }
{{ toYaml (merge (deepCopy (.own | default dict)) .times) }}
{{- end }}

{{/* Labels of a pod: (dict "root" $ "component" NAME "own" VALUES). */}}
{{- define "wakupush.podLabels" -}}
{{ include "wakupush.labels" . }}
{{- with (include "wakupush.podValues" . | fromYaml).labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What operators add to a container and its pod, and their own authority: (dict "root" $ "own" VALUES). */}}
{{- define "wakupush.extraEnv" -}}
{{- with (include "wakupush.podValues" . | fromYaml).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "wakupush.extraMounts" -}}
{{- if .root.Values.caSecret.name }}
- name: ca
  mountPath: /run/ca
  readOnly: true
{{- end }}
{{- with (include "wakupush.podValues" . | fromYaml).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "wakupush.extraVolumes" -}}
{{- if .root.Values.caSecret.name }}
- name: ca
  secret:
    secretName: {{ .root.Values.caSecret.name }}
    items:
      - key: {{ .root.Values.caSecret.key }}
        path: ca.crt
{{- end }}
{{- with (include "wakupush.podValues" . | fromYaml).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The secrets of a process, by what it reaches: (dict "root" $ "reaches" PARTS "postgres" NAME "redis" NAME). */}}
{{- define "wakupush.secretEnvironment" -}}
{{- if has "redis" .reaches }}
{{ include "wakupush.redisEnvironment" (dict "root" .root "variable" "WAKUPUSH_REDIS__URL" "own" .redis) }}
{{- end }}
{{- if has "postgres" .reaches }}
{{ include "wakupush.postgresEnvironment" (dict "root" .root "own" .postgres) }}
{{- end }}
{{- end }}

{{/* The file of settings, if there is one, as a volume, and where that is mounted: (dict "root" $ "settings" BOOLEAN). */}}
{{- define "wakupush.settingsVolume" -}}
{{- if and .settings (include "wakupush.settingsFile" .root) }}
- name: settings
  configMap:
    name: {{ include "wakupush.fullname" .root }}-settings-file
{{- end }}
{{- end }}

{{- define "wakupush.settingsMount" -}}
{{- if and .settings (include "wakupush.settingsFile" .root) }}
- name: settings
  mountPath: /run/settings
  readOnly: true
{{- end }}
{{- end }}

{{/* What is mounted at /tmp. Argument: its size, if not the usual one. */}}
{{- define "wakupush.temporary" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ ternary . "64Mi" (kindIs "string" .) }}
{{- end }}
