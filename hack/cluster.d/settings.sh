# Where the cluster without a registry keeps its things, what they are called, and its addresses; sourced.
# shellcheck shell=bash disable=SC2034

chart=$(dirname "${BASH_SOURCE[0]}")/../../charts/swiftlet
readonly chart

# chart_value SECTION NAME: of the chart's values.
chart_value() {
    awk -v section="$1:" -v name="$2:" \
        '/^[^ ]/ { inside = $1 == section } inside && $1 == name { gsub(/"/, "", $2); print $2; exit }' "$chart/values.yaml"
}

readonly nodes=${NODES:-3}                  # worker machines, 1..9
readonly cluster=${CLUSTER:-1}              # which of the clusters of namespaces that run side by side, 1..9
readonly cache=${SWIFTLET_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/swiftlet/kube}
readonly programs=$cache/bin
readonly images=$cache/images               # docker archives; a machine imports all of them when it starts
readonly logs=$cache/logs                   # of what setup does
state=$cache/state                          # the running cluster's: certificates, disks, logs
[[ $cluster == 1 ]] || state+=-$cluster
readonly state
readonly kubeconfig=$state/admin.conf

readonly helm_version=3.22.0
readonly oldest_helm=3.14.0                 # of those that are on the PATH already
chart_version=$(awk '$1 == "appVersion:" { print $2 }' "$chart/Chart.yaml")
readonly chart_version
readonly python_image=docker.io/library/python:3.11-slim
# What stands in for it has the name that the chart takes when it is told nothing.
redis_image=docker.io/library/$(chart_value redisImage repository):$(chart_value redisImage tag)
readonly redis_image
readonly pause_image=swiftlet.local/pause:1
readonly coredns_image=swiftlet.local/coredns:1.12.3
readonly local_path_image=swiftlet.local/local-path-provisioner:0.0.30

# offered_kubernetes [MINOR]: the versions that the cluster can be of; of one minor version, the one that is meant.
offered_kubernetes() {
    awk -v minor="${1:-}" '/^[0-9]/ && (minor == "" || index($0, minor ".") == 1)' \
        "$(dirname "${BASH_SOURCE[0]}")/kubernetes/versions"
}

# choose_kubernetes: KUBE's; otherwise that of the cluster that is there; otherwise the first one. Nothing if there is none.
choose_kubernetes() {
    local there=''
    [[ ! -e $state/kubernetes ]] || there=$(<"$state/kubernetes")
    offered_kubernetes "${KUBE:-${there%.*}}" | head -n 1
}

kubernetes_version=$(choose_kubernetes)
readonly kubernetes_version
readonly hyperkube=$programs/hyperkube-$kubernetes_version

# prefix_of CLUSTER: every namespace, link and control group of that cluster begins with it.
prefix_of() {
    [[ $1 == 1 ]] && printf 'swiftlet\n' || printf 'swiftlet%s\n' "$1"
}

# wire_of CLUSTER: the network between its machines: a bridge in its control plane's namespace.
wire_of() {
    printf '10.201.%d\n' $(($1 - 1))
}

# pods_of CLUSTER: machine i has what follows with .i.0/24.
pods_of() {
    printf '10.%d\n' $((244 + $1))
}

# services_of CLUSTER: the network of its Services, without the last two numbers.
services_of() {
    printf '10.%d\n' $((96 + $1))
}

# domain_of CLUSTER: by names in it the pods of all clusters find Services and pods of that one; within it, `cluster.local` is the same.
domain_of() {
    printf 'cluster%d.test\n' "$1"
}

prefix=$(prefix_of "$cluster")
wire=$(wire_of "$cluster")
pods=$(pods_of "$cluster")
readonly prefix wire pods
readonly control_plane_ip=$wire.1
readonly host_ip=$wire.254
services=$(services_of "$cluster")
readonly services_cidr=$services.0.0/16
readonly api_ip=$services.0.1
readonly dns_ip=$services.0.10

# Kubernetes' own defaults are 50 s and 300 s; here the loss of a machine is to be seen within a test.
readonly node_grace=16s
readonly tolerate_s=30

machine_ip() {
    printf '%s.%d\n' "$wire" $((10 + $1))
}

# zone_of NUMBER: each machine is in a zone of its own, zone-a for the first.
zone_of() {
    local letters=abcdefghi
    printf 'zone-%s\n' "${letters:$1-1:1}"
}

# is_up NAME: whether that machine runs.
is_up() {
    local pid
    pid=$(cat "$state/machines/$1/pid" 2>/dev/null) &&
        [[ -n $pid ]] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q 'cluster\.d/machine '
}
