{{/*
What the chart knows of breakers.yaml: its text, which goes into the ConfigMap as it is, and what
it says, so that the agent gets the right variables and a mistake shows before anything starts.
*/}}

{{- define "breaker-sidecar.configText" -}}
{{- if kindIs "string" .Values.config }}
{{- .Values.config }}
{{- else if .Values.config }}
{{- toYaml .Values.config }}
{{- else }}
{{- .Files.Get "files/breakers.yaml" }}
{{- end }}
{{- end }}

{{/* What it says, as JSON; `{}` where it stands in a ConfigMap that the chart cannot read. */}}
{{- define "breaker-sidecar.config" -}}
{{- if .Values.existingConfigMap -}}
{}
{{- else -}}
{{- $config := include "breaker-sidecar.configText" . | fromYaml }}
{{- if hasKey $config "Error" }}
{{- fail (printf "config: this is no YAML: %s" $config.Error) }}
{{- end }}
{{- $config | toJson }}
{{- end }}
{{- end }}

{{/*
The variables for the agent, as JSON: those of `env` of every provider that is in force. One whose
upstream needs a variable that the sidecar does not have is disabled there.
*/}}
{{- define "breaker-sidecar.agentEnv" -}}
{{- $found := dict "BREAKER_SIDECAR_ADMIN" (printf "http://localhost:%v" .Values.ports.admin) }}
{{- if not (kindIs "invalid" .Values.agentEnv) }}
{{- $found = merge (deepCopy .Values.agentEnv) $found }}
{{- else }}
{{- $port := .Values.ports.listen }}
{{- $set := list }}
{{- range .Values.env }}{{ $set = append $set .name }}{{ end }}
{{- range $name, $provider := (include "breaker-sidecar.config" . | fromJson).providers }}
{{- $provider = $provider | default dict }}
{{- $disabled := false }}
{{- $text := toJson (omit $provider "env") | replace "$${" "" }}
{{- range regexFindAll "\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}" $text -1 }}
{{- if not (has (trimAll "${}" .) $set) }}{{ $disabled = true }}{{ end }}
{{- end }}
{{- if not $disabled }}
{{- range $variable, $path := ($provider.env | default dict) }}
{{- $found = set $found $variable (printf "http://localhost:%v/%s%s" $port $name ($path | default "")) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $found | toJson }}
{{- end }}
