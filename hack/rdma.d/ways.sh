# In a machine: ways.sh SHOWN SAID. Proxy and metadata server, and what every way of a client does, through them and past
# them.
# shellcheck shell=bash
shown=$1 said=$2
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
# shellcheck source=hack/rdma.d/python.sh
source "$shown/python.sh"
export SWIFTLET_CONFIG=$said/swiftlet.yaml UCX_LOG_LEVEL=fatal SWIFTLET_PROXY=10.77.0.2

until [[ -e $said/ready ]]; do
    sleep 0.5
done
swiftlet proxy >/tmp/proxy 2>&1 &
proxy=$!
swiftlet metadata >/tmp/metadata 2>&1 &
metadata=$!
wait_for $SWIFTLET_PROXY 8080 $proxy /tmp/proxy && wait_for $SWIFTLET_PROXY 8090 $metadata /tmp/metadata || exit 1
# The first connection of the proxy finds out whether RDMA works.
python3 "$shown/put_and_get.py" $SWIFTLET_PROXY >/tmp/client 2>&1 || {
    cat /tmp/client
    exit 1
}
cat /tmp/client
python3 -m pytest -q -x -p no:cacheprovider -o asyncio_mode=auto \
    -o asyncio_default_fixture_loop_scope=function --rootdir "$shown" --durations 3 "$shown/ways.py"
status=$?
[[ $status -eq 0 ]] || tail -n 40 /tmp/proxy /tmp/metadata
kill $proxy $metadata
wait $proxy
wait $metadata
[[ $status -eq 0 ]] || exit $status
check_received "the proxy" "$(sed -n 's/^the proxy has fetched \([0-9]*\) bytes.*/\1/p' /tmp/client)"
