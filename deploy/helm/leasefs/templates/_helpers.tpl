{{- define "leasefs.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "leasefs.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "leasefs.select" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "leasefs.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "leasefs.namenodes" -}}
{{- if .Values.client.namenodes }}{{ .Values.client.namenodes }}
{{- else }}
{{- if not .Values.namenode.enabled }}{{ fail "client.namenodes is needed where namenode.enabled is false" }}{{ end }}
{{- $name := include "leasefs.name" . }}{{ $list := list }}
{{- range $i := until (int .Values.namenode.replicas) }}{{ $list = append $list (printf "%s-namenode-%d.%s-namenode.%s.svc:8020" $name $i $name $.Release.Namespace) }}{{ end }}
{{- join "," $list }}
{{- end }}
{{- end }}

{{- define "leasefs.ensemble" -}}
{{- with .Values.namenode }}
- --zookeeper={{ .zookeeper.hosts }}
- --namespace={{ .zookeeper.namespace }}
- --session-timeout={{ .zookeeper.sessionTimeout }}
{{- range .zookeeper.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What a namenode and the making of its namespace share. */}}
{{- define "leasefs.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "leasefs.unprivileged" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "leasefs.clientEnv" -}}
- {name: LEASEFS_NAMENODE, value: {{ include "leasefs.namenodes" . | quote }}}
- {name: LEASEFS_USER, value: {{ .Values.client.user | quote }}}
{{- if or .Values.client.tls .Values.client.caSecret }}
- {name: LEASEFS_TLS, value: "true"}
{{- end }}
{{- if .Values.client.caSecret }}
- {name: LEASEFS_TLS_CA, value: /etc/leasefs/ca/ca.crt}
{{- end }}
{{- if .Values.client.tokenSecret }}
- {name: LEASEFS_TOKEN_FILE, value: /etc/leasefs/token/token}
{{- end }}
{{- end }}

{{- define "leasefs.clientMounts" -}}
{{- if .Values.client.caSecret }}
- {name: ca, mountPath: /etc/leasefs/ca, readOnly: true}
{{- end }}
{{- if .Values.client.tokenSecret }}
- {name: token, mountPath: /etc/leasefs/token, readOnly: true}
{{- end }}
{{- end }}

{{- define "leasefs.clientVolumes" -}}
{{- if .Values.client.caSecret }}
- {name: ca, secret: {secretName: {{ .Values.client.caSecret | quote }}}}
{{- end }}
{{- if .Values.client.tokenSecret }}
- {name: token, secret: {secretName: {{ .Values.client.tokenSecret | quote }}, defaultMode: 0400}}
{{- end }}
{{- end }}
