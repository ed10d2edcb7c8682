{{- define "dedupd.serviceConfig" -}}
listen:
  grpc: ["[::]:{{ .Values.service.grpcPort }}"]
  admin: "[::]:{{ .Values.service.adminPort }}"
  {{- if .Values.service.tlsSecret }}
  tls:
    cert_file: /tls/tls.crt
    key_file: /tls/tls.key
    {{- if .Values.service.requireClientCertificate }}
    client_ca_file: /tls/ca.crt
    {{- end }}
  {{- end }}
{{ include "dedupd.policy" (dict "root" . "name" "default") }}
{{- end }}

{{- define "dedupd.storeEnv" -}}
- name: DEDUPD_STORE_URL
  {{- if .Values.store.secret.name }}
  valueFrom:
    secretKeyRef: { name: {{ .Values.store.secret.name }}, key: {{ .Values.store.secret.key }} }
  {{- else }}
  value: {{ .Values.store.url | quote }}
  {{- end }}
{{- with .Values.store.password.secret }}
- name: DEDUPD_STORE_PASSWORD
  valueFrom:
    secretKeyRef: { name: {{ . }}, key: {{ $.Values.store.password.key }} }
{{- end }}
{{- end }}
