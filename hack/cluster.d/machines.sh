# Machines made of namespaces: each a process tree with its own network, mounts, names and control groups, all plugged
# into one bridge. Killing a machine's first process is a power cut: the kernel kills all the others.
# shellcheck shell=bash disable=SC2154  # names from settings.sh

make_network() {
    local number
    if ! namespace_exists cp; then
        ip netns add "$prefix-cp"
        inside cp ip link set lo up
        inside cp ip link add wire type bridge
        inside cp ip addr add "$control_plane_ip/24" dev wire
        inside cp ip link set wire up
        inside cp sysctl -qw net.bridge.bridge-nf-call-iptables=0
    fi
    plug_in_this_computer
    for ((number = 1; number <= nodes; number++)); do
        namespace_exists "n$number" || plug_in_machine "$number"
    done
    route_pods
    for number in {1..9}; do
        [[ $number == "$cluster" ]] || ! ip netns list | grep -qw "$(prefix_of "$number")-cp" || connect_cluster "$number"
    done
}

namespace_exists() {
    ip netns list | grep -qw "$prefix-$1"
}

# connect_cluster NUMBER: a wire between the control planes' namespaces, over which machines, pods and Services of this cluster and
# that one reach each other, each by its own address.
connect_cluster() {
    local here there
    here=$prefix-cp there=$(prefix_of "$1")-cp
    if ! inside cp ip link show "to$1" >/dev/null 2>&1; then
        ip -n "$here" link add "to$1" type veth peer name "to$cluster" netns "$there"
    fi
    route_cluster "$here" "$cluster" "$1"
    route_cluster "$there" "$1" "$cluster"
}

# route_cluster NAMESPACE FROM TO: the way out of a cluster's control plane, and on to the Services behind it.
route_cluster() {
    local from to network
    from=$(wire_of "$2").1 to=$(wire_of "$3").1
    ip netns exec "$1" sysctl -qw net.ipv4.ip_forward=1
    ip -n "$1" addr replace "$from/32" peer "$to/32" dev "to$3"
    ip -n "$1" link set "to$3" up
    for network in "$(wire_of "$3").0/24" "$(pods_of "$3").0.0/16" "$(services_of "$3").0.0/16"; do
        ip -n "$1" route replace "$network" via "$to" dev "to$3"
    done
    ip -n "$1" route replace "$(services_of "$2").0.0/16" via "$(wire_of "$2").11"
}

# inside MACHINE COMMAND...: in its network.
inside() {
    ip netns exec "$prefix-$1" "${@:2}"
}

# So that kubectl, tests and curl on this computer reach machines, pods and Services.
plug_in_this_computer() {
    if ip link show "$prefix-host" >/dev/null 2>&1; then
        return
    fi
    ip link add "$prefix-host" type veth peer name host netns "$prefix-cp"
    inside cp ip link set host master wire up
    ip addr add "$host_ip/24" dev "$prefix-host"
    ip link set "$prefix-host" up
    ip route replace "$services_cidr" via "$(machine_ip 1)"
}

plug_in_machine() {
    local name=n$1
    ip netns add "$prefix-$name"
    inside "$name" ip link set lo up
    inside cp ip link add "$name" type veth peer name eth0 netns "$prefix-$name"
    inside cp ip link set "$name" master wire up
    inside "$name" ip addr add "$(machine_ip "$1")/24" dev eth0
    inside "$name" ip link set eth0 up
    inside "$name" ip route add default via "$control_plane_ip"
    inside "$name" sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
}

route_pods() {
    local from to
    for ((to = 1; to <= nodes; to++)); do
        ip route replace "$pods.$to.0/24" via "$(machine_ip "$to")"
        inside cp ip route replace "$pods.$to.0/24" via "$(machine_ip "$to")"
        for ((from = 1; from <= nodes; from++)); do
            [[ $from == "$to" ]] || inside "n$from" ip route replace "$pods.$to.0/24" via "$(machine_ip "$to")"
        done
    done
}

# A new group's cpusets are empty in version 1, and nothing may run in it before they are filled.
make_control_groups() {
    local hierarchy group
    for hierarchy in /sys/fs/cgroup/*/; do
        for group in "$hierarchy$prefix" "$hierarchy$prefix/$1" "$hierarchy$prefix/$1/system"; do
            mkdir -p "$group"
            if [[ -e $group/cpuset.cpus && -z $(<"$group/cpuset.cpus") ]]; then
                cat "$group/../cpuset.cpus" >"$group/cpuset.cpus"
                cat "$group/../cpuset.mems" >"$group/cpuset.mems"
            fi
        done
    done
}

# start_machine NAME ROLE: role is `control-plane` or the machine's number. One that runs stays as it is.
start_machine() {
    local home=$state/machines/$1
    mkdir -p "$home"
    if is_up "$1"; then
        return
    fi
    make_control_groups "$1"
    (
        for hierarchy in /sys/fs/cgroup/*/; do
            echo "$BASHPID" >"$hierarchy$prefix/$1/system/cgroup.procs" || true
        done
        # `ip netns exec` would mount /sys anew and hide the control groups.
        exec nsenter --net="/run/netns/$prefix-$1" setsid unshare --fork --kill-child=KILL --pid --mount --uts --ipc \
            --mount-proc --propagation private "$PWD/hack/cluster.d/machine" "$1" "$2" \
            </dev/null >"$home/init.log" 2>&1
    ) &
    echo $! >"$home/pid"
}

# stop_machine NAME: at once, as a power cut would. Its disk stays.
stop_machine() {
    local home=$state/machines/$1 pid tries
    if is_up "$1"; then
        pid=$(<"$home/pid")
        kill -KILL "$pid"
        for ((tries = 0; tries < 100; tries++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
    fi
    rm -f "$home/pid"
    for ((tries = 0; tries < 50; tries++)); do
        find /sys/fs/cgroup/*/"$prefix/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
        compgen -G "/sys/fs/cgroup/*/$prefix/$1" >/dev/null || break
        sleep 0.1
    done
}

start_all() {
    [[ -x $hyperkube && -e $(archive_of "$pause_image") ]] ||
        die "the programs and images of a cluster of Kubernetes $kubernetes_version are not there" \
            "${KUBE:+KUBE=$KUBE }hack/cluster setup"
    has_control_groups || die "$needs_control_groups" "install kind or k3d, which is used then"
    local number
    require_same_kubernetes
    mkdir -p "$state"
    printf '%s\n' "$kubernetes_version" >"$state/kubernetes"
    make_certificates
    make_network
    start_machine cp control-plane
    for ((number = 1; number <= nodes; number++)); do
        start_machine "n$number" "$number"
    done
    export KUBECONFIG=$kubeconfig
    wait_until 120 "the API server" kubectl get --raw /readyz
    forwarded_names >"$state/forwarded"
    render_manifests | kubectl apply -f - >/dev/null
    for ((number = 1; number <= nodes; number++)); do
        wait_until 180 "n$number" heartbeat_since_start "n$number"
        kubectl wait --for=condition=Ready "node/n$number" --timeout=180s >/dev/null
    done
    kubectl -n kube-system wait --for=condition=Available deployment --all --timeout=180s >/dev/null
}

# part_clusters NUMBER: drop everything that would go from this cluster to that one. Nobody is told, as with a line that is cut.
part_clusters() {
    inside cp ip link show "to$1" >/dev/null 2>&1 || die "cluster $1 is not joined to this one" "CLUSTER=$1 hack/cluster up"
    inside cp nft "add table inet part$1; add chain inet part$1 out { type filter hook postrouting priority 0; };
        flush chain inet part$1 out; add rule inet part$1 out oifname to$1 drop"
}

# join_clusters NUMBER: as before `part_clusters`, also when it was not used.
join_clusters() {
    inside cp nft "add table inet part$1; delete table inet part$1"
}

# The disks of one minor version are not those of another.
require_same_kubernetes() {
    local there
    [[ -e $state/kubernetes ]] || return 0
    there=$(<"$state/kubernetes")
    [[ ${there%.*} == "${kubernetes_version%.*}" ]] ||
        die "the cluster that is there is of Kubernetes $there" "hack/cluster down, which removes it, or leave out KUBE=$KUBE"
}

# Ready by a heartbeat of this run; the API server remembers those of the last one.
heartbeat_since_start() {
    local started beat
    started=$(date -u -r "$state/machines/$1/pid" +%FT%T)
    beat=$(kubectl -n kube-node-lease get lease "$1" -o 'jsonpath={.spec.renewTime}' 2>/dev/null) && [[ $beat > $started ]]
}

render_manifests() {
    local file
    for file in hack/cluster.d/manifests/*.yaml; do
        sed -e "s#\${COREDNS_IMAGE}#$coredns_image#; s#\${LOCAL_PATH_IMAGE}#$local_path_image#" \
            -e "s#\${PYTHON_IMAGE}#$python_image#; s#\${DNS_IP}#$dns_ip#; s#\${DOMAIN}#$(domain_of "$cluster")#" \
            -e "/\${OTHER_CLUSTERS}/{r $state/forwarded" -e 'd}' "$file"
        printf -- '---\n'
    done
}

# forwarded_names: the part of CoreDNS' file that asks the servers of the other clusters for the names in these.
forwarded_names() {
    local number
    for number in {1..9}; do
        [[ $number == "$cluster" ]] || cat <<CORE
    $(domain_of "$number"):53 {
        errors
        cache 5
        forward . $(services_of "$number").0.10
    }
CORE
    done
}

# wait_until SECONDS WHAT COMMAND...
wait_until() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || die "$what is not ready" "see $state/machines/*/var/log"
        sleep 0.3
    done
}

stop_all() {
    local home
    for home in "$state"/machines/*/; do
        [[ ! -d $home ]] || stop_machine "$(basename "$home")"
    done
    rmdir /sys/fs/cgroup/*/"$prefix" 2>/dev/null || true
    ip route del "$services_cidr" 2>/dev/null || true
    ip link del "$prefix-host" 2>/dev/null || true
    ip netns list | awk -v start="$prefix-" 'index($1, start) == 1 { print $1 }' | while read -r name; do
        ip netns del "$name"
    done
}

# enter_machine NAME COMMAND...
enter_machine() {
    local pid first
    is_up "$1" || die "there is no machine $1 running" "hack/cluster status"
    pid=$(<"$state/machines/$1/pid")
    # The file does not end with a newline, for which `read` blames it.
    read -r first _ <"/proc/$pid/task/$pid/children" || [[ -n $first ]]
    nsenter -t "$first" -n -m -p -u -i -- "${@:2}"
}

# import_archive FILE: into every node that runs; the others import it when they start.
import_archive() {
    local number
    for number in {1..9}; do
        if is_up "n$number"; then
            enter_machine "n$number" ctr -a /run/containerd/containerd.sock -n k8s.io images import "$1" >/dev/null
        fi
    done
}
