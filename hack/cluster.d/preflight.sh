# What `hack/cluster setup` and `demo` need of the machine, looked at before anything is begun. Everything that is in the way is told at once,
# each with what helps.
# shellcheck shell=bash disable=SC2154  # names from settings.sh and setup.sh

readonly needed_gib=14          # modules, Go's build cache, images and their layers
readonly needed_tmp_gib=2       # what Go links
readonly needed_memory_gib=4    # two compilers and a linker; later three nodes with a store
readonly oldest_go=1.24.0
readonly answer_within_s=30
readonly needs_control_groups="machines made of namespaces need control groups of version 1, and this machine has version 2"
problems=()

# problem TEXT FIX
problem() {
    problems+=("$(printf 'error: %s\n  fix: %s' "$1" "$2")")
}

# check_before STEP...: stop before those steps are begun if one of them can't succeed.
check_before() {
    local steps=" $* "
    check_room
    check_rights
    [[ $steps != *" packages "* ]] || check_debian
    if [[ $steps == *" kubernetes "* || $steps == *" coredns "* || $steps == *" local_path "* || $steps == *" helm "* ]]; then
        check_go
    fi
    [[ $steps != *" python "* ]] || check_python
    if [[ $steps == *" packages "* || $steps == *" python "* || $steps == *" redis "* ]]; then
        check_debian_mirror
    fi
    if [[ ${#problems[@]} -gt 0 ]]; then
        printf '%s\n' "${problems[@]}" >&2
        die "nothing was begun: ${#problems[@]} of the machine's properties are in the way" "see above"
    fi
}

check_room() {
    check_space "$cache" "$needed_gib" "set SWIFTLET_KUBE_CACHE to a folder on a larger file system"
    check_space "${TMPDIR:-/tmp}" "$needed_tmp_gib" "set TMPDIR to a folder on a larger file system"
    local free
    free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    ((free >= needed_memory_gib << 10)) ||
        problem "$free MiB of memory are available, and this needs $needed_memory_gib GiB" "end other programs"
}

# check_space FOLDER GIB FIX: less is needed of what has been filled already.
check_space() {
    local free used=0
    free=$(df --output=avail -k "$1" | tail -n 1)
    [[ $1 != "$cache" ]] || used=$(du -sk --one-file-system --exclude=state --exclude='state-*' "$cache" | cut -f 1)
    ((free + used >= $2 << 20)) ||
        problem "the file system of $1 has $((free >> 10)) MiB free, and this needs $((($2 << 10) - (used >> 10)))" "$3"
}

check_rights() {
    has_control_groups || problem "$needs_control_groups" "install kind or k3d with Docker, which is used then"
    unshare --mount --net --pid --uts --ipc --fork true 2>/dev/null ||
        problem "this root may not make namespaces: it runs in a container without CAP_SYS_ADMIN" "use the machine itself, or a privileged container"
    can_mount_overlays ||
        problem "no overlay can be mounted on the file system of $cache, and images need one" \
            "set SWIFTLET_KUBE_CACHE to a folder on ext4 or XFS"
}

has_control_groups() {
    [[ -d /sys/fs/cgroup/memory ]]
}

can_mount_overlays() {
    local folder code=0
    folder=$(mktemp -d "$cache/overlay-XXXXXX.part")
    mkdir "$folder"/{lower,upper,work,merged}
    # shellcheck disable=SC2016  # for the shell in the namespace
    unshare --mount sh -c 'mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" none "$1/merged"' \
        sh "$folder" 2>/dev/null || code=1
    rm -rf --one-file-system "$folder"
    return "$code"
}

check_debian() {
    command -v apt-get >/dev/null ||
        problem "there is no apt-get, and these packages are missing: $(missing_packages | tr '\n' ' ')" \
            "use Debian or Ubuntu, or install kind or k3d with Docker"
}

check_go() {
    local have
    if ! command -v go >/dev/null; then
        problem "go is not installed" "install Go $oldest_go or later"
        return
    fi
    have=$(go env GOVERSION)
    version_at_least "${have#go}" "$oldest_go" || problem "go is ${have#go}" "install Go $oldest_go or later"
    # It asks for a few bytes, and not even for them when it has the modules.
    go_environment timeout "$answer_within_s" go list -m "k8s.io/kubernetes@v$kubernetes_version" >/dev/null 2>&1 ||
        problem "Go's module proxy does not answer: $(go env GOPROXY)" "go env -w GOPROXY=..., or set HTTPS_PROXY"
}

check_python() {
    [[ -x $(.venv/bin/python -c 'import sys; print(sys.base_prefix)' 2>/dev/null)/bin/python3.11 ]] ||
        problem "the base image needs Python 3.11, and .venv is not there or has another" "PYTHON=python3.11 make setup"
}

check_debian_mirror() {
    local mirror
    mirror=$(debian_mirror)
    command -v apt-get >/dev/null || return 0
    timeout "$answer_within_s" /usr/lib/apt/apt-helper download-file "$mirror/dists/bookworm/Release" \
        "$cache/Release.part" >/dev/null 2>&1 ||
        problem "the mirror of Debian packages does not answer: $mirror" "see /etc/apt/sources.list.d, or set http_proxy"
    rm -f "$cache/Release.part"
}
