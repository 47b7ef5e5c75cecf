{{/* What the operator does in a namespace with clusters in it. */}}
{{- define "swiftlet.namespaceRules" -}}
- apiGroups: [swiftlet.io]
  resources: [storageclusters, rings, storagepolicies, storagequotas, storageusers]
  verbs: [get, list, watch, patch]
- apiGroups: [swiftlet.io]
  resources: [rings]
  verbs: [create, delete]
- apiGroups: [swiftlet.io]
  resources: [storageclusters/status, rings/status, storagepolicies/status, storagequotas/status, storageusers/status]
  verbs: [get, patch]
- apiGroups: [swiftlet.io]
  resources:
    - storageclusters/finalizers
    - rings/finalizers
    - storagepolicies/finalizers
    - storagequotas/finalizers
    - storageusers/finalizers
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, secrets, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors, prometheusrules]
  verbs: [get, list, watch, create, patch, delete]
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
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get, list, watch]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get, list, watch]
{{- end }}
