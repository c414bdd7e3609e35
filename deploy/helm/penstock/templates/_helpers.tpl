{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "penstock.secret" }}
- name: {{ .key }}
  valueFrom:
    secretKeyRef:
      name: {{ .root.Values.secretName }}
      key: {{ .key }}
      {{- if .optional }}
      optional: true
      {{- end }}
{{- end }}

{{- define "penstock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "penstock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "penstock.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "penstock.placement" }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What differs between the processes of the Procfile. */ -}}
{{- define "penstock.processes" -}}
web:
  command: [node, --max-semi-space-size=16, --expose-gc, dist/src/web.js]
  port: 3000
  secrets: { S3_ACCESS_KEY_ID: optional, S3_SECRET_ACCESS_KEY: optional }
  spread: true
  replaces: true
  scaled: {{ .Values.autoscaling.enabled }}
  tmp: 64Mi
worker:
  command: [node, --max-semi-space-size=32, dist/workers/worker.js]
  port: 3002
  spread: true
  replaces: true
  scaled: {{ .Values.keda.enabled }}
  tmp: 64Mi
sync:
  command: [node, dist/workers/sync.js]
  port: 3003
  spread: true
  replaces: true
  secrets: { INTEGRATION_KEY: optional, S3_ACCESS_KEY_ID: optional, S3_SECRET_ACCESS_KEY: optional }
  tmp: 20Gi
board:
  command: [node, dist/src/board.js]
  port: 3001
  secrets: { BOARD_PASSWORD: needed, INTEGRATION_KEY: optional, OIDC_CLIENT_SECRET: optional }
  tmp: 64Mi
{{- end }}

{{- define "penstock.config" -}}
{{- $own := dict "HOST" "0.0.0.0" "WORKER_HOST" "0.0.0.0" "SYNC_HOST" "0.0.0.0" "BOARD_HOST" "0.0.0.0" "SYNC_SCRATCH_BYTES" "2147483648" -}}
{{- $_ := set $own "LANES" (toString .Values.lanes) -}}
{{- $_ := set $own "SHARDS" (toString .Values.shards) -}}
{{- $_ := set $own "SHUTDOWN_DELAY_MS" (.Values.shutdown.delayMs | int | toString) -}}
{{- $_ := set $own "SHUTDOWN_TIMEOUT_MS" (.Values.shutdown.timeoutMs | int | toString) -}}
{{- range $name, $value := merge (deepCopy .Values.settings) $own }}
{{ $name }}: {{ $value | toString | quote }}
{{- end }}
{{- end }}
