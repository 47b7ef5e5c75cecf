# The same cluster by kind or k3d, where Docker is.
# shellcheck shell=bash disable=SC2154  # `kind` is chosen by hack/cluster

docker_up() {
    mkdir -p "$state"
    if [[ $kind == kind ]]; then
        kind_config | kind create cluster --name "$prefix" --kubeconfig "$kubeconfig" --wait 180s --config -
    else
        local number
        local -a labels=()
        for ((number = 1; number <= nodes; number++)); do
            labels+=(--k3s-node-label "topology.kubernetes.io/zone=$(zone_of "$number")@agent:$((number - 1))")
        done
        k3d cluster create "$prefix" --agents "$nodes" "${labels[@]}" --wait --kubeconfig-update-default=false
        k3d kubeconfig get "$prefix" >"$kubeconfig"
    fi
}

kind_config() {
    local number
    printf 'kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n  - role: control-plane\n'
    for ((number = 1; number <= nodes; number++)); do
        printf '  - role: worker\n    labels: {topology.kubernetes.io/zone: %s}\n' "$(zone_of "$number")"
    done
}

docker_down() {
    if [[ $kind == kind ]]; then
        kind delete cluster --name "$prefix"
    else
        k3d cluster delete "$prefix"
    fi
    rm -f "$kubeconfig"
}

docker_image() {
    make image "IMAGE=$1"
}

docker_load() {
    if [[ $kind == kind ]]; then
        kind load docker-image "$1" --name "$prefix"
    else
        k3d image import "$1" --cluster "$prefix"
    fi
}
