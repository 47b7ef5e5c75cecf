# In a machine: proxy.sh SHOWN SAID. The proxy, and a client that puts and gets through it.
# shellcheck shell=bash
shown=$1 said=$2
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
# shellcheck source=hack/rdma.d/python.sh
source "$shown/python.sh"
export SWIFTLET_CONFIG=$said/swiftlet.yaml UCX_LOG_LEVEL=fatal
address=10.77.0.2

until [[ -e $said/ready ]]; do
    sleep 0.5
done
swiftlet proxy >/tmp/proxy 2>&1 &
proxy=$!
wait_for $address 8080 $proxy /tmp/proxy || exit 1
python3 "$shown/put_and_get.py" $address >/tmp/client 2>&1
status=$?
cat /tmp/client
[[ $status -eq 0 ]] || tail -n 40 /tmp/proxy
kill $proxy
wait $proxy
status=$((status | $?))
[[ $status -eq 0 ]] || exit $status
check_received "the proxy" "$(sed -n 's/^the proxy has fetched \([0-9]*\) bytes.*/\1/p' /tmp/client)"
exit $status
