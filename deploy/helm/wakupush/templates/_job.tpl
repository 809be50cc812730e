{{/* The pod of a job: (dict "root" $ "component" NAME "args" LIST "env" YAML "resources" VALUES
     "image" TEXT "settings" BOOLEAN "claims" CLAIMS "temporary" SIZE "serviceAccount" NAME "asksKubernetes" BOOLEAN "driver" NAME).
     "settings" says whether the ConfigMap is read, which a hook before the installation does not find, and no "serviceAccount"
     either; "claims" are the names of volumes' claims by where they are mounted; "asksKubernetes" says whether it gets a token
     for the Kubernetes API; "driver" is the host name of a driver with executors. */}}
{{- define "wakupush.jobPod" -}}
restartPolicy: Never
{{- $pod := include "wakupush.podValues" (dict "root" .root "own" dict) | fromYaml }}
{{- with .serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .driver }}
hostname: {{ . }}
subdomain: {{ include "wakupush.spark" $.root }}
{{- end }}
{{ include "wakupush.scheduling" (dict "root" .root "component" .component "own" dict "asksKubernetes" .asksKubernetes) }}
terminationGracePeriodSeconds: 30
securityContext: {{- include "wakupush.podSecurity" (dict "root" .root "uid" 10001) | nindent 2 }}
{{- with $pod.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .component }}
    image: {{ .image }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: {{ toJson .args }}
    {{- if or .settings $pod.extraEnvFrom }}
    envFrom:
      {{- if .settings }}
      - configMapRef:
          name: {{ include "wakupush.fullname" .root }}-settings
      {{- end }}
      {{- with $pod.extraEnvFrom }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    env:
      {{- .env | trim | nindent 6 }}
      {{- with include "wakupush.extraEnv" (dict "root" .root "own" dict) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
    resources: {{- toYaml .resources | nindent 6 }}
    securityContext: {{- include "wakupush.containerSecurity" .root | nindent 6 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- with include "wakupush.settingsMount" . }}
      {{- . | trim | nindent 6 }}
      {{- end }}
      {{- range $path, $_ := .claims }}
      - name: {{ base $path }}
        mountPath: {{ $path }}
      {{- end }}
      {{- if .driver }}
      - name: spark
        mountPath: /run/spark
      {{- end }}
      {{- with include "wakupush.extraMounts" (dict "root" .root "own" dict) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
volumes:
  {{- include "wakupush.temporary" .temporary | nindent 2 }}
  {{- with include "wakupush.settingsVolume" . }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  {{- if .driver }}
  - name: spark
    configMap:
      name: {{ include "wakupush.spark" .root }}
  {{- end }}
  {{- range $path, $claim := .claims }}
  - name: {{ base $path }}
    persistentVolumeClaim:
      claimName: {{ $claim }}
  {{- end }}
  {{- with include "wakupush.extraVolumes" (dict "root" .root "own" dict) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}
