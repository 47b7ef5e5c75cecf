# In a machine: ways.sh SHOWN SAID. Proxies and metadata server, and what every way of a client does, through them and past
# them.
# shellcheck shell=bash
shown=$1 said=$2
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
# shellcheck source=hack/rdma.d/python.sh
source "$shown/python.sh"
export SWIFTLET_CONFIG=$said/swiftlet.yaml UCX_LOG_LEVEL=fatal SWIFTLET_PROXY=10.77.0.2 SWIFTLET_SAID=$said

until [[ -e $said/ready ]]; do
    sleep 0.5
done
SWIFTLET_PROXY__FRONT=true swiftlet proxy >/tmp/proxy 2>&1 &
proxy=$!
SWIFTLET_PROXY__FRONT=false SWIFTLET_PROXY__PORT=8082 SWIFTLET_PROXY__MANAGEMENT_PORT=8083 swiftlet proxy >/tmp/cold 2>&1 &
cold=$!
swiftlet metadata >/tmp/metadata 2>&1 &
metadata=$!
wait_for $SWIFTLET_PROXY 8080 $proxy /tmp/proxy && wait_for $SWIFTLET_PROXY 8082 $cold /tmp/cold &&
    wait_for $SWIFTLET_PROXY 8090 $metadata /tmp/metadata || exit 1
# The first connection of the proxy finds out whether RDMA works.
python3 "$shown/put_and_get.py" $SWIFTLET_PROXY >/tmp/client 2>&1 || {
    cat /tmp/client
    exit 1
}
cat /tmp/client
python3 -m pytest -q -x -p no:cacheprovider -o asyncio_mode=auto \
    -o asyncio_default_fixture_loop_scope=function --rootdir "$shown" --durations 5 "$shown/ways.py" "$shown/together.py"
status=$?
[[ $status -eq 0 ]] || tail -n 40 /tmp/proxy /tmp/cold /tmp/metadata
# Counters are brought into the metrics every few seconds.
sleep 6
moved=$(python3 -c "
import re, urllib.request
page = ''.join(urllib.request.urlopen(f'http://$SWIFTLET_PROXY:{port}/metrics', timeout=60).read().decode() for port in (8081, 8083))
print(*(int(sum(map(float, re.findall(rf'^swiftlet_transport_{name}_bytes_total.* (\S+)$', page, re.M)))) for name in ('lent', 'fetched')))
") || status=1
echo "the proxies have lent ${moved% *} bytes"
kill $proxy $cold $metadata
for process in $proxy $cold $metadata; do
    wait "$process" || status=1
done
[[ $status -eq 0 ]] || exit $status
check_received "both proxies" "${moved#* }"
