{{/*
What no schema can see: values that do not go together. Each message says what to change. Every
mistake is told at once.
*/}}
{{- define "breaker-sidecar.check" -}}
{{- $errors := list }}
{{- $v := .Values }}
{{- $w := $v.workload }}

{{- if and $v.config $v.existingConfigMap }}
{{- $errors = append $errors "config and existingConfigMap are both set: keep one of them" }}
{{- end }}
{{- if and $v.rollOnConfigChange $v.existingConfigMap }}
{{- $errors = append $errors "rollOnConfigChange needs `config`: the chart cannot see when an existingConfigMap changes; set it to false" }}
{{- end }}
{{- if ne 3 (len (uniq (list (int $v.ports.listen) (int $v.ports.admin) (int $v.ports.probe)))) }}
{{- $errors = append $errors "ports.listen, ports.admin and ports.probe must differ" }}
{{- end }}

{{- $config := include "breaker-sidecar.config" . | fromJson }}
{{- if not $v.existingConfigMap }}
{{- if not $config.providers }}
{{- $errors = append $errors "config.providers is missing: name at least one upstream" }}
{{- end }}
{{- if kindIs "string" $v.config }}
{{- $known := .Files.Get "files/keys.json" | fromJson }}
{{- range splitList "\n" (include "breaker-sidecar.unknownKeys" (dict "value" $config "known" $known "path" "") | trim) }}
{{- if . }}{{ $errors = append $errors . }}{{ end }}
{{- end }}
{{- end }}
{{- range $name, $provider := $config.providers }}
{{- $upstream := toString (($provider | default dict).upstream | default "") }}
{{- if not (regexMatch "^(https?://|unix:/)|\\$\\{" $upstream) }}
{{- $errors = append $errors (printf "config.providers.%s.upstream: an address is needed that starts with https://, http:// or unix:/" $name) }}
{{- end }}
{{- end }}
{{- $leads := dict }}
{{- range $name, $provider := $config.providers }}
{{- range $variable, $_ := (($provider | default dict).env | default dict) }}
{{- if hasKey $leads $variable }}
{{- $errors = append $errors (printf "config.providers.%s.env.%s: %s has this variable too: keep one of them" $name $variable (get $leads $variable)) }}
{{- end }}
{{- $_ := set $leads $variable $name }}
{{- end }}
{{- end }}
{{- with $config.state_file }}
{{- $folder := include "breaker-sidecar.stateFolder" $ }}
{{- if or (not (hasPrefix (printf "%s/" $folder) (toString .))) (contains "/" (trimPrefix (printf "%s/" $folder) (toString .))) }}
{{- $errors = append $errors (printf "config.state_file is %s: nothing else is writable in the sidecar's container: name it %s/state.json" . $folder) }}
{{- end }}
{{- end }}
{{- $admin := $config.admin | default dict }}
{{- if and (not $admin.token_file) (ne (toString (get $admin "mutations")) "false") }}
{{- $errors = append $errors "config.admin: the agent shares the sidecar's loopback, so it could steer its own breakers: set `mutations: false`, or `token_file: /run/secrets/NAME/…` with a secret in `secrets`" }}
{{- end }}
{{- range $key, $pair := dict
  "listen" (list $config.listen $v.ports.listen)
  "admin.listen" (list $admin.listen $v.ports.admin) }}
{{- $given := index $pair 0 }}
{{- $wanted := printf "localhost:%v" (index $pair 1) }}
{{- if and $given (ne (toString $given) $wanted) }}
{{- $errors = append $errors (printf "config.%s: it has no effect in a pod, where it is %s: leave it out and set `ports`" $key $wanted) }}
{{- end }}
{{- end }}
{{- if (($config.probe | default dict).listen) }}
{{- $errors = append $errors "config.probe.listen: it has no effect in a pod: leave it out and set `ports.probe` and `probes.host`" }}
{{- end }}

{{- $variables := dict }}
{{- range $v.env }}
{{- if has .name (list "BREAKER_SIDECAR_LISTEN" "BREAKER_SIDECAR_ADMIN" "BREAKER_SIDECAR_PROBE" "BREAKER_SIDECAR_CONFIG") }}
{{- $errors = append $errors (printf "env: %s is set by the chart: leave it out and set `ports` and `probes.host`" .name) }}
{{- end }}
{{- if hasKey $variables .name }}
{{- $errors = append $errors (printf "env: %s stands twice: keep one of them" .name) }}
{{- end }}
{{- $_ := set $variables .name true }}
{{- if and .value .valueFrom }}
{{- $errors = append $errors (printf "env: %s has both value and valueFrom: keep one of them" .name) }}
{{- end }}
{{- if and .value (regexMatch "(?i)(key|token|secret|password|credentials?)$" .name) }}
{{- $errors = append $errors (printf "env: %s is a secret by its name, and values are no place for one: use `valueFrom: {secretKeyRef: …}`" .name) }}
{{- end }}
{{- end }}
{{- if not $v.image.repository }}
{{- $errors = append $errors "image.repository is empty: say where the sidecar's image is" }}
{{- end }}
{{- range $where, $resources := dict "resources" $v.resources "workload.agent.resources" $w.agent.resources }}
{{- range $what, $wanted := $resources.requests }}
{{- $most := index ($resources.limits | default dict) $what }}
{{- if and (not (kindIs "invalid" $most)) (gt (include "breaker-sidecar.quantity" $wanted | float64) (include "breaker-sidecar.quantity" $most | float64)) }}
{{- $errors = append $errors (printf "%s.requests.%s is %v, more than %s.limits.%s, which is %v: raise the limit, or ask for less" $where $what $wanted $where $what $most) }}
{{- end }}
{{- end }}
{{- end }}
{{- with ($v.resources.limits | default dict).memory }}
{{- if lt (include "breaker-sidecar.quantity" . | float64) (include "breaker-sidecar.quantity" "64Mi" | float64) }}
{{- $errors = append $errors (printf "resources.limits.memory is %v, and the daemon takes some 60Mi before the first call: it would be killed at once; give it 64Mi or more" .) }}
{{- end }}
{{- end }}
{{- if or (and (regexMatch "^[0-9.]+$" $v.probes.host) (not (has $v.probes.host (list "0.0.0.0" "127.0.0.1")))) (and (hasPrefix "[" $v.probes.host) (not (has $v.probes.host (list "[::]" "[::1]")))) }}
{{- $errors = append $errors (printf "probes.host is %s: nobody knows a pod's address before it runs: use 0.0.0.0, or \"[::]\" with IPv6 alone" $v.probes.host) }}
{{- end }}
{{- if or (hasPrefix "127." $v.probes.host) (has $v.probes.host (list "localhost" "::1" "[::1]")) }}
{{- $errors = append $errors (printf "probes.host is %s: the kubelet dials the pod's address, and nobody would answer there: use 0.0.0.0, or \"[::]\" with IPv6 alone" $v.probes.host) }}
{{- end }}

{{- $names := list }}
{{- range $v.secrets }}{{ $names = append $names .name }}{{ end }}
{{- if ne (len $names) (len (uniq $names)) }}
{{- $errors = append $errors "secrets: two of them have the same name" }}
{{- end }}
{{- $files := dict }}
{{- with $admin.token_file }}{{ $_ := set $files "admin.token_file" . }}{{ end }}
{{- range $name, $provider := $config.providers }}
{{- $provider = $provider | default dict }}
{{- range $header, $given := $provider.set_headers | default dict }}
{{- $where := printf "providers.%s.set_headers.%s" $name $header }}
{{- $given = $given | default dict }}
{{- with $given.file }}{{ $_ := set $files (printf "%s.file" $where) . }}{{ end }}
{{- if and $given.value (not (contains "${" (toString $given.value))) }}
{{- $errors = append $errors (printf "config.%s.value: a ConfigMap is no place for a secret: use `file: /run/secrets/NAME/…` with `secrets`, or `${VARIABLE}` with `env`" $where) }}
{{- end }}
{{- end }}
{{- range $key := list "ca" "cert" "key" }}
{{- with index ($provider.tls | default dict) $key }}{{ $_ := set $files (printf "providers.%s.tls.%s" $name $key) . }}{{ end }}
{{- end }}
{{- end }}
{{- range $where, $file := $files }}
{{- if hasPrefix "/run/secrets/" (toString $file) }}
{{- $name := index (splitList "/" (toString $file)) 3 }}
{{- if not (has $name $names) }}
{{- $errors = append $errors (printf "config.%s is %s, and `secrets` has none that is called %s: add {name: %s, secretName: …}" $where $file $name $name) }}
{{- end }}
{{- else if not (contains "${" (toString $file)) }}
{{- $errors = append $errors (printf "config.%s is %s, which is not in the sidecar's container: mount it with `secrets` and name it /run/secrets/NAME/…" $where $file) }}
{{- end }}
{{- end }}
{{- end }}

{{- if ne $w.kind "none" }}
{{- if not $w.agent.image.repository }}
{{- $errors = append $errors (printf "workload.agent.image.repository is missing: a %s needs your agent's image" $w.kind) }}
{{- end }}
{{- if and (eq $w.kind "Job") (eq $v.mode "classic") }}
{{- $errors = append $errors "workload.kind Job with mode classic would never be complete, since the sidecar does not end by itself: set `mode: native`" }}
{{- end }}
{{- range $label, $_ := $w.podLabels }}
{{- if has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance") }}
{{- $errors = append $errors (printf "workload.podLabels: %s is the label by which the %s finds its pods: leave it out, or set nameOverride" $label $w.kind) }}
{{- end }}
{{- end }}
{{- range $w.volumes }}
{{- if hasPrefix "breaker-sidecar-" (.name | default "" | toString) }}
{{- $errors = append $errors (printf "workload.volumes: %s is a name of the sidecar's own volumes: choose another" .name) }}
{{- end }}
{{- end }}
{{- range $w.initContainers }}
{{- if has (.name | default "") (list "breaker-sidecar" "agent") }}
{{- $errors = append $errors (printf "workload.initContainers: %s is a container of this pod already: choose another name" .name) }}
{{- end }}
{{- end }}
{{- range $container := concat (list $w.agent) ($w.initContainers | default list) }}
{{- range $container.volumeMounts }}
{{- if hasPrefix "breaker-sidecar-" (.name | default "" | toString) }}
{{- $errors = append $errors (printf "volumeMounts: %s is of the sidecar alone: use a volume of your own" .name) }}
{{- end }}
{{- end }}
{{- end }}
{{- $read := list }}
{{- range $w.volumes }}
{{- $read = append $read ((.secret | default dict).secretName | default "") }}
{{- range ((.projected | default dict).sources) }}
{{- $read = append $read ((.secret | default dict).name | default "") }}
{{- end }}
{{- end }}
{{- range $container := concat (list $w.agent) ($w.initContainers | default list) }}
{{- range $container.env }}
{{- $read = append $read (((.valueFrom | default dict).secretKeyRef | default dict).name | default "") }}
{{- end }}
{{- range $container.envFrom }}
{{- $read = append $read ((.secretRef | default dict).name | default "") }}
{{- end }}
{{- end }}
{{- range $v.secrets }}
{{- if has .secretName $read }}
{{- $errors = append $errors (printf "workload: a container of the agent's reads secret %s, which `secrets` gives to the sidecar alone: give it one of its own" .secretName) }}
{{- end }}
{{- end }}
{{- $grace := int $w.terminationGracePeriodSeconds }}
{{- $waits := ternary (int $v.preStopSeconds) 0 (eq $v.mode "classic") }}
{{- $drain := $config.drain | default dict }}
{{- $drains := add (include "breaker-sidecar.seconds" ($drain.delay | default "0s") | int) (include "breaker-sidecar.seconds" ($drain.timeout | default "20s") | int) }}
{{- if and (not $v.existingConfigMap) (gt (int (add $waits $drains)) $grace) }}
{{- $errors = append $errors (printf "workload.terminationGracePeriodSeconds is %d, and the sidecar may take %d s to end (preStopSeconds, drain.delay, drain.timeout): raise it, or lower those" $grace (int (add $waits $drains))) }}
{{- end }}
{{- $ours := include "breaker-sidecar.agentEnv" . | fromJson }}
{{- $named := dict }}
{{- range $w.agent.env }}
{{- $_ := set $named .name (.value | default "" | toString) }}
{{- if hasKey $ours .name }}
{{- $errors = append $errors (printf "workload.agent.env: %s is the variable that leads the agent to the sidecar: leave it out here, and make its value the upstream of that provider in `config`" .name) }}
{{- end }}
{{- end }}
{{- range list "HTTP_PROXY" "http_proxy" "ALL_PROXY" "all_proxy" }}
{{- if and (index $named .) (not (contains "localhost" (printf "%s%s" (get $named "NO_PROXY") (get $named "no_proxy")))) }}
{{- $errors = append $errors (printf "workload.agent.env: with %s the agent's calls to the sidecar would go to that proxy: add NO_PROXY with localhost,127.0.0.1,::1" .) }}
{{- end }}
{{- end }}
{{- $taken := list (int $v.ports.listen) (int $v.ports.admin) (int $v.ports.probe) }}
{{- range $w.agent.ports }}
{{- if has (int .containerPort) $taken }}
{{- $errors = append $errors (printf "workload.agent.ports: %d is a port of the sidecar, and a pod has one network: change `ports`" (int .containerPort)) }}
{{- end }}
{{- end }}
{{- end }}

{{- if $v.injection.enabled }}
{{- if eq $v.mode "classic" }}
{{- $errors = append $errors "injection puts a native sidecar in: set `mode: native`" }}
{{- end }}
{{- if $v.existingConfigMap }}
{{- $errors = append $errors "injection brings its ConfigMap into every namespace: set `config` instead of existingConfigMap" }}
{{- end }}
{{- range $v.injection.namespaces }}
{{- if has . (list "kube-system" "kube-public" "kube-node-lease") }}
{{- $errors = append $errors (printf "injection.namespaces: %s is a namespace of the system, whose pods must start without anything of ours" .) }}
{{- end }}
{{- end }}
{{- if not (include "breaker-sidecar.policyVersion" .) }}
{{- $errors = append $errors (printf "injection needs MutatingAdmissionPolicies: Kubernetes 1.36, or 1.34 with them switched on, and this is %s: set injection.apiVersion if it has them all the same, or use another way in" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- end }}

{{- if $v.networkPolicy.enabled }}
{{- if kindIs "invalid" $v.networkPolicy.agentPorts }}
{{- $errors = append $errors "networkPolicy.agentPorts is missing: the policy isolates the pod, and the agent's own ports must stay open; `[]` says that it serves nobody" }}
{{- end }}
{{- if and (eq $w.kind "none") (not $v.injection.enabled) (not $v.networkPolicy.podLabels) }}
{{- $errors = append $errors "networkPolicy.podLabels is missing: the chart makes no pods here, so say which ones the policy is for" }}
{{- end }}
{{- end }}
{{- if and $v.podMonitor.enabled (eq $w.kind "none") (not $v.injection.enabled) }}
{{- $errors = append $errors "podMonitor finds the pods by their labels, and the chart makes none here: set workload.kind or injection.enabled, or monitor the pods that you made" }}
{{- end }}
{{- if and $v.prometheusRule.enabled (not (.Files.Get "files/rules.yaml")) }}
{{- $errors = append $errors "prometheusRule: this copy of the chart has no files/rules.yaml" }}
{{- end }}
{{- if and $v.dashboard.enabled (not (.Files.Get "files/dashboard.json")) }}
{{- $errors = append $errors "dashboard: this copy of the chart has no files/dashboard.json" }}
{{- end }}

{{- if $errors }}
{{- fail (printf "\n\nThese values do not go together:\n  - %s\n" (join "\n  - " $errors)) }}
{{- end }}
{{- end }}

{{/* The version of the policy's API that the cluster has; empty if none. */}}
{{- define "breaker-sidecar.policyVersion" -}}
{{- if .Values.injection.apiVersion -}}
{{ .Values.injection.apiVersion }}
{{- else if or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
admissionregistration.k8s.io/v1
{{- else if or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy") (semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version) -}}
admissionregistration.k8s.io/v1beta1
{{- end }}
{{- end }}
