# In a machine: storage.sh SHOWN SAID [OBJECT-SERVERS]. Object servers and a container server, as they are run anywhere,
# until SAID/stop is there; beside several object servers a replicator, which also removes what has expired.
#
# Who tests writes to SAID/asked what is to happen to object servers, by their numbers: `stop N...`, `start N...`,
# `empty N...` (the devices of stopped ones). It is done when the file is gone.
# shellcheck shell=bash
shown=$1 said=$2 servers=${3:-1}
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
# shellcheck source=hack/rdma.d/python.sh
source "$shown/python.sh"
export SWIFTLET_CONFIG=$said/swiftlet.yaml UCX_LOG_LEVEL=fatal
address=10.77.0.1
mkdir -p /srv/devices
mount -t tmpfs -o size=900m tmpfs /srv/devices
mkdir /srv/devices/c0

# Processes of object servers by their numbers, and of the others by their names.
objects=() others=()

start_object() {
    mkdir -p "/srv/devices/d$1"
    SWIFTLET_OBJECT__PORT=$((6200 + $1)) SWIFTLET_OBJECT__DEVICES="[\"d$1\"]" swiftlet object >>"/tmp/object-$1" 2>&1 &
    objects[$1]=$!
}

is_ready() {
    wait_for $address $((6200 + $1)) "${objects[$1]}" "/tmp/object-$1"
}

obey() {
    local what number numbers
    read -r what numbers <"$said/asked"
    for number in $numbers; do
        case $what in
        stop)
            kill "${objects[number]}"
            wait "${objects[number]}" || return 1
            unset "objects[number]"
            ;;
        empty) rm -rf "/srv/devices/d$number" ;;
        start) start_object "$number" ;;
        esac
    done
    if [[ $what == start ]]; then
        for number in $numbers; do
            is_ready "$number" || return 1
        done
    fi
    rm "$said/asked"
}

swiftlet rdma check --pool-bytes $((64 << 20)) || exit 1
swiftlet container >/tmp/container 2>&1 &
others+=($!)
for ((number = 0; number < servers; number++)); do
    start_object $number
done
wait_for $address 6300 "${others[0]}" /tmp/container || exit 1
for ((number = 0; number < servers; number++)); do
    is_ready $number || exit 1
done
if ((servers > 1)); then
    swiftlet replicator >/tmp/replicator 2>&1 &
    others+=($!)
    wait_for $address 6400 "${others[1]}" /tmp/replicator || exit 1
fi
touch "$said/ready"
status=0
until [[ -e $said/stop ]]; do
    kill -0 "${objects[@]}" "${others[@]}" 2>/dev/null || break
    if [[ -e $said/asked ]]; then
        obey || {
            echo "error: not done: $(cat "$said/asked")"
            status=1
            break
        }
    fi
    sleep 0.5
done
# Counters are brought into the metrics every 5 s.
sleep 6
fetched=$(python3 -c "
import json, urllib.request
total = 0
for port in range(6200, 6200 + $servers):
    ask = lambda path: urllib.request.urlopen(f'http://$address:{port}' + path, timeout=60).read().decode()
    status = json.loads(ask('/statusz'))
    print('an object server: transports', status['transports'], 'rdma', status['rdma'])
    name = 'swiftlet_object_rdma_fetched_bytes_total '
    total += sum(float(line.split()[1]) for line in ask('/metrics').splitlines() if line.startswith(name))
print(total)
") || status=1
echo "${fetched%$'\n'*}"
[[ $status -eq 0 ]] || tail -n 40 /tmp/object-* /tmp/replicator
kill "${objects[@]}" "${others[@]}"
for process in "${objects[@]}"; do
    wait "$process" || status=1
done
check_received "the object servers" "$(printf '%.0f' "${fetched##*$'\n'}")"
exit $status
