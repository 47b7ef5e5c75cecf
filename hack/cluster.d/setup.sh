# What the cluster without a registry is made of: Debian packages, programs from the Go module proxy, base images.
# shellcheck shell=bash disable=SC2154  # names from settings.sh

readonly debian_packages=(
    buildah conntrack containerd containernetworking-plugins debootstrap gcc iproute2 iptables kubernetes-client libc6-dev
    nftables openssl runc
)

set_up() {
    install_packages
    mkdir -p "$programs" "$images"
    go_build kubernetes hyperkube . "$(version_flags)"
    go_build addons coredns . ''
    go_build addons local-path-provisioner github.com/rancher/local-path-provisioner ''
    install_helm
    make_base_images
}

install_packages() {
    local package
    local -a missing=()
    for package in "${debian_packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || missing+=("$package")
    done
    # kubectl may have come from elsewhere.
    if command -v kubectl >/dev/null; then
        missing=("${missing[@]/kubernetes-client/}")
    fi
    # shellcheck disable=SC2206  # drops the empty ones
    missing=(${missing[@]})
    if [[ ${#missing[@]} -gt 0 ]]; then
        say "cluster: installing ${missing[*]}"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    fi
}

go_environment() {
    env GOMODCACHE="$cache/gomod" GOCACHE="$cache/gocache" GOFLAGS=-buildvcs=false GOTOOLCHAIN=local CGO_ENABLED=0 "$@"
}

# go_build MODULE PROGRAM PACKAGE LINKER_FLAGS: unless the program is there.
go_build() {
    local module=$1 program=$programs/$2 package=$3 flags=$4
    if [[ -x $program ]]; then
        return
    fi
    command -v go >/dev/null || die "go is not installed" "install Go 1.24 or later"
    say "cluster: building $2 (Kubernetes itself takes 10 minutes on two free cores)"
    (cd "hack/cluster.d/$module" && go_environment go build -trimpath -ldflags "-s -w $flags" -o "$program" "$package")
}

version_flags() {
    local package
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' \
            "$package" "$kubernetes_version" "$package" "$package" "$(cut -d . -f 2 <<<"$kubernetes_version")"
    done
}

install_helm() {
    if [[ ! -x $programs/helm ]]; then
        say "cluster: building helm"
        GOBIN=$programs go_environment go install -trimpath -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@v$helm_version"
    fi
}
