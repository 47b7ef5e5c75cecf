{{/*
What the operator does in a namespace with clusters in it. Each verb is used by a call that
charts/tests/test_rights_on_apiserver.py makes against a real API server; the table there says what for.
*/}}
{{- define "swiftlet.namespaceRules" -}}
- apiGroups: [swiftlet.io]
  resources: [storageclusters, rings, storagepolicies, storagequotas, storageusers]
  verbs: [get, list, watch]
# Its finalizer.
- apiGroups: [swiftlet.io]
  resources: [storageclusters]
  verbs: [patch]
- apiGroups: [swiftlet.io]
  resources: [rings]
  verbs: [create]
- apiGroups: [swiftlet.io]
  resources: [storageclusters/status, rings/status, storagepolicies/status, storagequotas/status, storageusers/status]
  verbs: [patch]
# To be named as owners that wait for what they own; some Kubernetes ask for this right.
- apiGroups: [swiftlet.io]
  resources: [storageclusters/finalizers, storageusers/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors, prometheusrules]
  verbs: [list, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, list]
{{- end }}

{{/* What it has to read of the whole Kubernetes: a pod's zone is its node's, a class says whether volumes grow, and a
volume says whether it is lost with its node. */}}
{{- define "swiftlet.clusterRules" -}}
# Whether an operator in another namespace looks after the same.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [swiftlet-operator]
  verbs: [list]
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end }}
