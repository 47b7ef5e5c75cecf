# What the cluster without a registry is made of: Debian packages, programs from the Go module proxy, base images.
# Each step says whether it has anything to do (`lacks_NAME`) and does it (`make_NAME`).
# shellcheck shell=bash disable=SC2154,SC2034  # names from settings.sh; step_seconds is read by name

readonly setup_steps=(packages kubernetes coredns local_path helm python redis pods)
# How long each takes, on one core that is free for it; Go uses all cores.
declare -rA step_core_s=(
    [packages]=40 [kubernetes]=600 [coredns]=30 [local_path]=40 [helm]=120 [python]=50 [redis]=40 [pods]=10
)
declare -rA step_title=(
    [packages]='Debian packages'
    [kubernetes]="Kubernetes $kubernetes_version and its etcd"
    [coredns]='CoreDNS'
    [local_path]='local-path-provisioner'
    [helm]='helm'
    [python]="the image $python_image, of Debian packages and this machine's Python"
    [redis]="the image $redis_image, of Debian packages"
    [pods]="images of the cluster's own pods"
)

readonly debian_packages=(
    buildah conntrack containerd containernetworking-plugins debootstrap gcc iproute2 iptables kubernetes-client libc6-dev
    nftables openssl runc
)

# What Go's compiler is told: no tables for debuggers, which nobody reads here, and garbage collected seldom. Each saves
# more than a tenth of its work.
readonly compiler_flags=-dwarf=false
readonly compiler_gogc=400

set_up() {
    local step number=0
    local -a missing
    find_missing
    if [[ ${#missing[@]} -eq 0 ]]; then
        return
    fi
    mkdir -p "$programs" "$images" "$logs"
    exec 8>"$cache/setup.lock"
    if ! flock --nonblock 8; then
        say "cluster: another hack/cluster setup is at work in $cache; waiting for it"
        flock 8
        find_missing
        [[ ${#missing[@]} -gt 0 ]] || return 0
    fi
    check_before "${missing[@]}"
    say "cluster: what is missing takes about $(spoken "$(expected_s "${missing[@]}")") on this machine:"
    for step in "${missing[@]}"; do
        say "  - ${step_title[$step]}, about $(spoken "$(expected_s "$step")")"
    done
    for step in "${missing[@]}"; do
        with_progress "[$((number += 1))/${#missing[@]}] ${step_title[$step]}" "$(expected_s "$step")" "$step"
    done
    say "cluster: everything is there ($(spoken "$SECONDS"))"
}

# find_missing: the steps that have something to do, in `missing`.
find_missing() {
    local step
    missing=()
    for step in "${setup_steps[@]}"; do
        ! "lacks_$step" || missing+=("$step")
    done
}

# expected_s STEP...: the seconds that they take here.
expected_s() {
    local step total=0 cores
    cores=$(nproc)
    for step; do
        if uses_all_cores "$step"; then
            total=$((total + step_core_s[$step] / cores))
        else
            total=$((total + step_core_s[$step]))
        fi
    done
    printf '%s\n' "$total"
}

uses_all_cores() {
    [[ $1 == kubernetes || $1 == coredns || $1 == local_path || $1 == helm ]]
}

lacks_packages() {
    [[ -n $(missing_packages) ]]
}

missing_packages() {
    local package
    for package in "${debian_packages[@]}"; do
        # kubectl may have come from elsewhere.
        if [[ $package == kubernetes-client ]] && command -v kubectl >/dev/null; then
            continue
        fi
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || printf '%s\n' "$package"
    done
}

make_packages() {
    local -a missing
    mapfile -t missing < <(missing_packages)
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"
}

lacks_kubernetes() {
    # It was once called so whatever its version.
    if [[ ! -e $hyperkube && -x $programs/hyperkube ]] &&
        [[ $("$programs/hyperkube" kube-apiserver --version) == "Kubernetes v$kubernetes_version" ]]; then
        ln "$programs/hyperkube" "$hyperkube"
    fi
    [[ ! -x $hyperkube ]]
}

make_kubernetes() {
    local minor=${kubernetes_version%.*}
    # The tag chooses between files of which each fits some versions.
    go_build kubernetes "$(basename "$hyperkube")" . "$(version_flags)" -modfile="$minor.mod" -tags "kube_${minor/./_}"
}

# An older one may lack what asks other servers.
lacks_coredns() {
    [[ ! -x $programs/coredns ]] || ! "$programs/coredns" -plugins | grep -qw forward
}

make_coredns() {
    go_build addons coredns . ''
}

lacks_local_path() {
    [[ ! -x $programs/local-path-provisioner ]]
}

make_local_path() {
    go_build addons local-path-provisioner github.com/rancher/local-path-provisioner ''
}

# One on the PATH will do, unless it is too old.
lacks_helm() {
    local have
    [[ ! -x $programs/helm ]] || return 1
    have=$(helm version --template '{{.Version}}' 2>/dev/null) || return 0
    ! version_at_least "${have#v}" "$oldest_helm"
}

make_helm() {
    rm -rf "$programs/helm.part"
    GOBIN=$programs/helm.part go_environment \
        go install -trimpath -gcflags "all=$compiler_flags" -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@v$helm_version"
    mv "$programs/helm.part/helm" "$programs/helm"
    rmdir "$programs/helm.part"
}

go_environment() {
    env GOMODCACHE="$cache/gomod" GOCACHE="$cache/gocache" GOFLAGS=-buildvcs=false GOTOOLCHAIN=local CGO_ENABLED=0 \
        GOGC="$compiler_gogc" "$@"
}

# go_build MODULE PROGRAM PACKAGE LINKER_FLAGS [OPTION...]
go_build() {
    local module=$1 program=$programs/$2 package=$3 flags=$4
    shift 4
    go_environment go -C "hack/cluster.d/$module" build "$@" -trimpath -gcflags "all=$compiler_flags" \
        -ldflags "-s -w $flags" -o "$program.part" "$package"
    mv "$program.part" "$program"
}

version_flags() {
    local package
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' \
            "$package" "$kubernetes_version" "$package" "$package" "$(cut -d . -f 2 <<<"$kubernetes_version")"
    done
}
