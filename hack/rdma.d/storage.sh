# In a machine: storage.sh SHOWN SAID. An object and a container server, as they are run anywhere, until SAID/stop is there.
# shellcheck shell=bash
shown=$1 said=$2
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
# shellcheck source=hack/rdma.d/python.sh
source "$shown/python.sh"
export SWIFTLET_CONFIG=$said/swiftlet.yaml UCX_LOG_LEVEL=fatal
address=10.77.0.1
mkdir -p /srv/devices
mount -t tmpfs -o size=400m tmpfs /srv/devices
mkdir /srv/devices/d0 /srv/devices/c0

swiftlet rdma check --pool-bytes $((64 << 20)) || exit 1
swiftlet container >/tmp/container 2>&1 &
container=$!
swiftlet object >/tmp/object 2>&1 &
object=$!
wait_for $address 6300 $container /tmp/container && wait_for $address 6200 $object /tmp/object || exit 1
touch "$said/ready"
until [[ -e $said/stop ]]; do
    kill -0 $object $container 2>/dev/null || break
    sleep 0.5
done
# Counters are brought into the metrics every 5 s.
sleep 6
fetched=$(python3 -c "
import json, urllib.request
ask = lambda path: urllib.request.urlopen('http://$address:6200' + path, timeout=60).read().decode()
status = json.loads(ask('/statusz'))
print('the object server: transports', status['transports'], 'rdma', status['rdma'])
print([line.split()[1] for line in ask('/metrics').splitlines() if line.startswith('swiftlet_object_rdma_fetched_bytes_total ')][0])
")
status=$?
echo "${fetched%$'\n'*}"
[[ $status -eq 0 ]] || tail -n 40 /tmp/object
kill $object $container
wait $object
status=$((status | $?))
check_received "the object server" "$(printf '%.0f' "${fetched##*$'\n'}")"
exit $status
