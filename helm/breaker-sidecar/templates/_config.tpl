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
{{- if contains "into Go value of type map" $config.Error }}
{{- fail "config: a mapping is needed, as in breakers.yaml, with `providers` in it" }}
{{- end }}
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

{{/*
The keys of a text that breakers.yaml does not know, one a line, each with those that it does. The
scope is {value, known, path}; a mapping is checked by the schema of the values.
*/}}
{{- define "breaker-sidecar.unknownKeys" -}}
{{- $scope := . }}
{{- if and (kindIs "map" .known) (kindIs "map" .value) }}
{{- range $key, $value := .value }}
{{- $path := ternary $key (printf "%s.%s" $scope.path $key) (empty $scope.path) }}
{{- if hasKey $scope.known "*" }}
{{- include "breaker-sidecar.unknownKeys" (dict "value" $value "known" (get $scope.known "*") "path" $path) }}
{{- else if hasKey $scope.known $key }}
{{- include "breaker-sidecar.unknownKeys" (dict "value" $value "known" (get $scope.known $key) "path" $path) }}
{{- else if not (hasPrefix "x-" $key) }}
{{- printf "config.%s: no such key; there are %s\n" $path (keys $scope.known | sortAlpha | join ", ") }}
{{- end }}
{{- end }}
{{- else if and (kindIs "map" .known) (kindIs "slice" .value) (hasKey .known "[]") }}
{{- range $index, $value := .value }}
{{- include "breaker-sidecar.unknownKeys" (dict "value" $value "known" (get $scope.known "[]") "path" (printf "%s[%d]" $scope.path $index)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A duration of breakers.yaml in whole seconds, rounded up; 0 for one that comes from a variable. */}}
{{- define "breaker-sidecar.seconds" -}}
{{- $text := toString . }}
{{- $number := regexFind "^[0-9.]+" $text }}
{{- $unit := trimPrefix $number $text }}
{{- $scale := get (dict "" 1.0 "s" 1.0 "m" 60.0 "h" 3600.0 "ms" 0.001) $unit | default 0.0 }}
{{- ceil (mulf (float64 ($number | default "0")) $scale) | int64 }}
{{- end }}

{{/* A quantity of Kubernetes as a number: 64Mi, 100m, 0.5. */}}
{{- define "breaker-sidecar.quantity" -}}
{{- $text := ternary . (printf "%f" (float64 .)) (kindIs "string" .) }}
{{- $number := regexFind "^[0-9.]+" $text }}
{{- $scale := get (dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0) (trimPrefix $number $text) | default 1.0 }}
{{- mulf (float64 $number) $scale }}
{{- end }}

{{/* Where the state file may be: a volume of the pod, which outlives the container. */}}
{{- define "breaker-sidecar.stateFolder" -}}/var/lib/breaker-sidecar{{- end }}
{{- define "breaker-sidecar.keepsState" -}}
{{- if (include "breaker-sidecar.config" . | fromJson).state_file }}yes{{ end }}
{{- end }}
