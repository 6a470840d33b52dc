{{/*
The sidecar as parts of a pod: one container, its volumes, and what the agent's containers take
from it. Everything that brings it into a pod uses these: the workload of this chart, a chart that
depends on it, the policy of injection, the kustomize component.
*/}}

{{/* The container, as an item of `initContainers` (native) or `containers` (classic). */}}
{{- define "breaker-sidecar.container" -}}
- name: breaker-sidecar
  image: {{ include "breaker-sidecar.image" (dict "image" .Values.image "default" .Chart.AppVersion) | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if eq .Values.mode "native" }}
  restartPolicy: Always
  {{- else if .Values.preStopSeconds }}
  lifecycle:
    preStop:
      exec:
        # The image has no shell and no `sleep`.
        command:
          - /opt/breaker-sidecar/bin/python
          - -c
          - import time; time.sleep({{ .Values.preStopSeconds }})
  {{- end }}
  args:
    - serve
    - --config
    - /etc/breaker-sidecar/breakers.yaml
    # After a roll-back the file may know more than the daemon.
    - --unknown-keys
    - warn
  env:
    - name: BREAKER_SIDECAR_LISTEN
      value: localhost:{{ .Values.ports.listen }}
    - name: BREAKER_SIDECAR_ADMIN
      value: localhost:{{ .Values.ports.admin }}
    - name: BREAKER_SIDECAR_PROBE
      value: {{ printf "%s:%v" .Values.probes.host .Values.ports.probe | quote }}
    {{- with .Values.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: breaker-probe
      containerPort: {{ .Values.ports.probe }}
      protocol: TCP
  startupProbe:
    httpGet: {path: /readyz, port: breaker-probe}
    {{- toYaml .Values.probes.startup | nindent 4 }}
  livenessProbe:
    httpGet: {path: /healthz, port: breaker-probe}
    {{- toYaml .Values.probes.liveness | nindent 4 }}
  readinessProbe:
    httpGet: {path: /readyz, port: breaker-probe}
    {{- toYaml .Values.probes.readiness | nindent 4 }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    # The folder: a file mounted by subPath would never change.
    - name: breaker-sidecar-config
      mountPath: /etc/breaker-sidecar
      readOnly: true
    {{- range .Values.secrets }}
    - name: breaker-sidecar-secret-{{ .name }}
      mountPath: /run/secrets/{{ .name }}
      readOnly: true
    {{- end }}
    {{- if include "breaker-sidecar.keepsState" . }}
    - name: breaker-sidecar-state
      mountPath: {{ include "breaker-sidecar.stateFolder" . }}
    {{- end }}
{{- end }}

{{/* The volumes, as items of `volumes`. */}}
{{- define "breaker-sidecar.volumes" -}}
- name: breaker-sidecar-config
  configMap:
    name: {{ include "breaker-sidecar.configMapName" . | quote }}
{{- range .Values.secrets }}
- name: breaker-sidecar-secret-{{ .name }}
  secret:
    secretName: {{ .secretName | quote }}
    # The daemon runs as another user than the one who owns the files.
    defaultMode: 0444
{{- end }}
{{- if include "breaker-sidecar.keepsState" . }}
# It outlives a container that is started again, and not the pod.
- name: breaker-sidecar-state
  emptyDir: {}
{{- end }}
{{- end }}

{{/*
The variables for the agent's container, as an item of `envFrom`. Put it first: what stands later,
and every `env`, stands above it.
*/}}
{{- define "breaker-sidecar.envFrom" -}}
- configMapRef:
    name: {{ include "breaker-sidecar.agentEnvName" . | quote }}
{{- end }}
