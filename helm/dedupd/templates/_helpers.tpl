{{- define "dedupd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "dedupd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "dedupd.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "dedupd.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "dedupd.injector" -}}
{{ include "dedupd.fullname" . }}-injector
{{- end }}

{{/* Takes (dict "root" $ "component" "injector"). */}}
{{- define "dedupd.selector" -}}
app.kubernetes.io/name: {{ include "dedupd.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "dedupd.labels" -}}
{{ include "dedupd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "dedupd.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "dedupd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "dedupd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Where pods go; takes (dict "root" $ "component" … "values" .Values.injector). */}}
{{- define "dedupd.scheduling" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "dedupd.selector" . | nindent 8 }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The policy of a name; takes (dict "root" $ "name" "default"). */}}
{{- define "dedupd.policy" -}}
{{- $policy := deepCopy (index .root.Values.policies .name | default dict) -}}
{{- if not $policy.namespaces -}}
{{- $policy = merge $policy (.root.Files.Get "files/built_in.yaml" | fromYaml) -}}
{{- end -}}
{{- toYaml $policy -}}
{{- end }}

{{- define "dedupd.check" -}}
{{- if regexMatch "://[^/@]*:[^/@]*@" .Values.store.url -}}
{{- fail "store.url holds a password, which would be shown in a ConfigMap: put the whole URL into a Secret and name it by store.secret.name" -}}
{{- end -}}
{{- if and (eq .Values.mode "service") .Values.service.requireClientCertificate (not .Values.service.tlsSecret) -}}
{{- fail "service.requireClientCertificate needs service.tlsSecret, a Secret with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- end }}
