{{/*
Names and labels. Every template takes the chart's own scope: `.` in here, and in a chart that has
this one as a dependency `index .Subcharts "breaker-sidecar"`.
*/}}

{{- define "breaker-sidecar.name" -}}
{{- .Values.nameOverride | default "breaker-sidecar" | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "breaker-sidecar.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "breaker-sidecar.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "breaker-sidecar.selectorLabels" -}}
app.kubernetes.io/name: {{ include "breaker-sidecar.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "breaker-sidecar.labels" -}}
helm.sh/chart: {{ printf "breaker-sidecar-%s" .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "breaker-sidecar.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{- define "breaker-sidecar.configMapName" -}}
{{- .Values.existingConfigMap | default (include "breaker-sidecar.fullname" .) }}
{{- end }}

{{- define "breaker-sidecar.agentEnvName" -}}
{{- printf "%s-agent-env" (include "breaker-sidecar.fullname" .) }}
{{- end }}

{{/* An image with a digest, or else a tag; the scope is {image, default}. */}}
{{- define "breaker-sidecar.image" -}}
{{- if .image.digest -}}
{{ printf "%s@%s" .image.repository .image.digest }}
{{- else if or .image.tag .default -}}
{{ printf "%s:%s" .image.repository (.image.tag | default .default) }}
{{- else -}}
{{ .image.repository }}
{{- end }}
{{- end }}

{{/* The labels by which monitoring finds the pods: the injected ones, else those of the workload. */}}
{{- define "breaker-sidecar.monitoredLabels" -}}
{{- if .Values.injection.enabled -}}
breaker-sidecar/inject: "true"
{{- else -}}
{{ include "breaker-sidecar.selectorLabels" . }}
{{- end }}
{{- end }}
