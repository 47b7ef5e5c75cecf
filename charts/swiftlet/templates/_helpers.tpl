{{- define "swiftlet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, with the chart's unless it says so itself; room is left for suffixes. */}}
{{- define "swiftlet.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "swiftlet.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "swiftlet.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "swiftlet.operatorName" -}}
{{- printf "%s-operator" (include "swiftlet.fullname" .) }}
{{- end }}

{{/* What has no namespace says whose it is: a release of the same name may be in another namespace. */}}
{{- define "swiftlet.wideName" -}}
{{- printf "%s:%s" .root.Release.Namespace .name }}
{{- end }}

{{- define "swiftlet.rdmaName" -}}
{{- printf "%s-rdma-plugin" (include "swiftlet.fullname" .) }}
{{- end }}

{{- define "swiftlet.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "swiftlet.operatorName" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: say which one when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/*
What selectors look for; fixed for a Deployment's life. The name is not for overriding: `swiftlet` alone is what the
network policies of clusters let in.
*/}}
{{- define "swiftlet.selectorLabels" -}}
app.kubernetes.io/name: swiftlet-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "swiftlet.labels" -}}
{{ include "swiftlet.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* An image by digest when one is given: a tag may move, a digest can't. */}}
{{- define "swiftlet.imageOf" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .fallback }}
{{- end }}
{{- end }}

{{- define "swiftlet.image" -}}
{{ include "swiftlet.imageOf" (dict "image" .Values.image "fallback" .Chart.AppVersion) }}
{{- end }}

{{/* `restricted` in the terms of the pod security standards. */}}
{{- define "swiftlet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "swiftlet.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
