{{/* The pod of a hook's Job: the operator's image where the operator may run. `name`, `args`, `account`, `root`. */}}
{{- define "swiftlet.hookPod" -}}
metadata:
  labels: {{- include "swiftlet.labels" (dict "root" .root "component" .name) | nindent 4 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ .account }}
  enableServiceLinks: false
  securityContext: {{- include "swiftlet.podSecurity" .root | nindent 4 }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.operator.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .root.Values.operator.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.operator.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ include "swiftlet.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [swiftlet-operator]
      args: {{- toYaml .args | nindent 8 }}
      securityContext: {{- include "swiftlet.containerSecurity" .root | nindent 8 }}
      # What it says last is shown with the pod when it fails.
      terminationMessagePolicy: FallbackToLogsOnError
      resources:
        requests: {cpu: 10m, memory: 64Mi}
        limits: {memory: 256Mi}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- with .definitions }}
        - {name: definitions, mountPath: /etc/swiftlet/crds, readOnly: true}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- with .definitions }}
    - name: definitions
      configMap: {name: {{ . }}}
    {{- end }}
{{- end }}
