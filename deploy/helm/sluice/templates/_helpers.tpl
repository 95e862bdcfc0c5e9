{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The ports of the Service, by name. */}}
{{- define "sluice.ports" -}}
{{- if eq .Values.mode "service" }}
{{- $ports := dict "check" 8081 "grpc" 8082 "resp" 6380 "spoe" 9000 }}
{{- range .Values.integrations }}
{{ . }}: {{ get $ports . }}
{{- end }}
{{- else -}}
http: 8080
{{- end }}
{{- end }}

{{/* The Secrets whose values are files in /etc/sluice. */}}
{{- define "sluice.tokens" -}}
{{- range $flag, $secret := dict "admin-tokens" .Values.adminTokens "door-tokens" .Values.doorTokens }}
{{- with $secret.existingSecret }}
- secret: {name: {{ toYaml . }}, items: [{key: {{ toYaml $secret.key }}, path: {{ $flag }}}]}
{{- end }}
{{- end }}
{{- end }}

{{- define "sluice.container" -}}
image: {{ include "sluice.image" . }}
args:
  - serve
  {{- if eq .Values.mode "gateway" }}
  - {{ print "--upstream=" .Values.upstream | toYaml }}
  {{- else if eq .Values.mode "sidecar" }}
  - --upstream=http://127.0.0.1:{{ .Values.sidecar.port }}
  {{- end }}
  - --policy=/etc/sluice/policy.yaml
  {{- range $name, $port := include "sluice.ports" . | fromYaml }}
  - --{{ eq $name "http" | ternary "proxy" $name }}=:{{ $port }}
  {{- end }}
  - --admin=:9090
  - --admin-tokens=/etc/sluice/admin-tokens
  {{- if .Values.doorTokens.existingSecret }}
  - --door-tokens=/etc/sluice/door-tokens
  {{- end }}
  - --drain-delay=10s
  {{- with .Values.args }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .Values.store.existingSecret .Values.rules.existingSecret }}
env:
  {{- range $name, $secret := dict "SLUICE_STORE" .Values.store "SLUICE_RULES" .Values.rules }}
  {{- with $secret.existingSecret }}
  - {name: {{ $name }}, valueFrom: {secretKeyRef: {name: {{ toYaml . }}, key: {{ toYaml $secret.key }}}}}
  {{- end }}
  {{- end }}
{{- end }}
ports:
  {{- range $name, $port := include "sluice.ports" . | fromYaml }}
  - {name: {{ $name }}, containerPort: {{ $port }}}
  {{- end }}
  - {name: admin, containerPort: 9090}
# Readiness fails for --drain-delay before the listeners close. Liveness does not depend on the store.
readinessProbe: {httpGet: {path: /readyz, port: admin}, periodSeconds: 2}
livenessProbe: {httpGet: {path: /healthz, port: admin}, periodSeconds: 10}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile: {type: RuntimeDefault}
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts: [{name: config, mountPath: /etc/sluice, readOnly: true}]
{{- end }}
