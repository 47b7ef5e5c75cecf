# In a machine: client.sh SHOWN SAID ADDRESS. PUT and GET at the object server, by RDMA and after RDMA is lost.
# shellcheck shell=bash
shown=$1 said=$2 address=$3
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
export SWIFTLET_SILENCE_MS=10000 SWIFTLET_RDMA=rc UCX_LOG_LEVEL=fatal SWIFTLET_OBJECT_SERVER=$address SWIFTLET_OBJECT_CUT=$said/cut

until [[ -e $said/ready ]]; do
    sleep 0.2
done
"$shown/object" --exact objects_are_put_and_got_by_rdma --nocapture >/tmp/client 2>&1
status=$?
cat /tmp/client
fetched=$(sed -n 's/^lent [0-9]* bytes, fetched \([0-9]*\).*/\1/p' /tmp/client | awk '{sum += $1} END {print sum + 0}')
check_received "the client" "$fetched"
if [[ $status -eq 0 ]]; then
    "$shown/object" --exact when_rdma_is_lost_objects_are_sent --nocapture
    status=$?
fi
exit $status
