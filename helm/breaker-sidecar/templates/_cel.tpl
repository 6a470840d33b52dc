{{/*
A value as an expression of CEL, the language of admission policies: every object gets the type of
its place, since maps there cannot mix types. The scope is {type, value}.
*/}}
{{- define "breaker-sidecar.cel" -}}
{{- $type := .type }}
{{- if kindIs "map" .value }}
{{- $free := has (last (splitList "." $type)) (list "requests" "limits" "matchLabels" "labels" "annotations") }}
{{- $parts := list }}
{{- range $key, $value := .value }}
{{- $name := ternary (toJson $key) $key $free }}
{{- $parts = append $parts (printf "%s: %s" $name (include "breaker-sidecar.cel" (dict "type" (printf "%s.%s" $type $key) "value" $value))) }}
{{- end }}
{{- printf "%s{%s}" (ternary "" $type $free) (join ", " $parts) }}
{{- else if kindIs "slice" .value }}
{{- $parts := list }}
{{- range .value }}
{{- $parts = append $parts (include "breaker-sidecar.cel" (dict "type" $type "value" .)) }}
{{- end }}
{{- printf "[%s]" (join ", " $parts) }}
{{- else if kindIs "float64" .value }}
{{- if eq .value (floor .value) }}{{ int64 .value }}{{ else }}{{ .value }}{{ end }}
{{- else }}
{{- toJson .value }}
{{- end }}
{{- end }}
