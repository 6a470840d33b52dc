{{/* The agent's pod with the sidecar in it, for a Deployment and a Job alike. */}}
{{- define "breaker-sidecar.podTemplate" -}}
{{- $w := .Values.workload }}
metadata:
  labels:
    {{- include "breaker-sidecar.selectorLabels" . | nindent 4 }}
    {{- with $w.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $w.podAnnotations .Values.rollOnConfigChange }}
  annotations:
    {{- with $w.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if .Values.rollOnConfigChange }}
    checksum/config: {{ include "breaker-sidecar.configText" . | sha256sum }}
    {{- end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  {{- with $w.serviceAccountName }}
  serviceAccountName: {{ . | quote }}
  {{- end }}
  {{- with $w.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq $w.kind "Job" }}
  restartPolicy: {{ $w.job.restartPolicy }}
  {{- end }}
  terminationGracePeriodSeconds: {{ $w.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml $w.podSecurityContext | nindent 4 }}
  {{- if or (eq .Values.mode "native") $w.initContainers }}
  initContainers:
    {{- if eq .Values.mode "native" }}
    {{- include "breaker-sidecar.container" . | nindent 4 }}
    {{- end }}
    {{- with $w.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    {{- include "breaker-sidecar.agent" . | nindent 4 }}
    {{- if eq .Values.mode "classic" }}
    {{- include "breaker-sidecar.container" . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "breaker-sidecar.volumes" . | nindent 4 }}
    {{- with $w.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $w $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}

{{- define "breaker-sidecar.agent" -}}
{{- $agent := .Values.workload.agent -}}
- name: agent
  image: {{ include "breaker-sidecar.image" (dict "image" $agent.image "default" "") | quote }}
  imagePullPolicy: {{ $agent.image.pullPolicy }}
  envFrom:
    {{- include "breaker-sidecar.envFrom" . | nindent 4 }}
    {{- with $agent.envFrom }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- range $key := list "command" "args" "env" "ports" "resources" "securityContext" "volumeMounts" "lifecycle" "startupProbe" "livenessProbe" "readinessProbe" }}
  {{- with index $agent $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}
