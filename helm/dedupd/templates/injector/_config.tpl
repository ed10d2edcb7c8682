{{- define "dedupd.injectorConfig" -}}
tls:
  {{- if eq .Values.injector.certificate.source "cert-manager" }}
  files: { cert: /tls/tls.crt, key: /tls/tls.key }
  {{- else }}
  self_made:
    secret: {{ include "dedupd.injector" . }}-tls
    service: {{ include "dedupd.injector" . }}
    webhook_configuration: {{ include "dedupd.injector" . }}
    validity: {{ .Values.injector.certificate.validity }}
  {{- end }}
sidecar:
  image: {{ include "dedupd.image" . }}
  image_pull_policy: {{ .Values.image.pullPolicy }}
  grpc: {{ .Values.sidecar.grpc }}
  grpc_port: {{ .Values.sidecar.grpcPort }}
  admin_port: {{ .Values.sidecar.adminPort }}
  log_format: {{ .Values.logFormat }}
  log_level: {{ .Values.sidecar.logLevel }}
  run_as_user: {{ .Values.sidecar.runAsUser }}
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  store:
    {{- if .Values.store.secret.name }}
    secret: {{ .Values.store.secret.name }}
    key: {{ .Values.store.secret.key }}
    {{- else }}
    url: {{ .Values.store.url | quote }}
    {{- end }}
    {{- with .Values.store.password.secret }}
    password: { secret: {{ . }}, key: {{ $.Values.store.password.key }} }
    {{- end }}
    {{- with .Values.store.filesSecret }}
    files_secret: {{ . }}
    {{- end }}
  policies:
    {{- range $name, $_ := .Values.policies }}
    {{ $name }}: |
      {{- include "dedupd.policy" (dict "root" $ "name" $name) | nindent 6 }}
    {{- end }}
{{- end }}
