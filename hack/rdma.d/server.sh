# In a machine: server.sh SHOWN SAID ADDRESS. An object server, until SAID/stop is there; cuts RDMA off at SAID/cut.
# shellcheck shell=bash
shown=$1 said=$2 address=$3
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
export SWIFTLET_SILENCE_MS=10000 SWIFTLET_RDMA=rc UCX_LOG_LEVEL=fatal SWIFTLET_OBJECT_LISTEN=$address SWIFTLET_OBJECT_STOP=$said/stop

"$shown/object" the_object_server --exact --nocapture >/tmp/server 2>&1 &
server=$!
until grep -q "at: " /tmp/server; do
    sleep 0.2
done
touch "$said/ready"
while kill -0 $server 2>/dev/null; do
    if [[ -e $said/cut && ! -e $said/cut.done ]]; then
        # RoCE is UDP to this port. TCP goes on as before.
        modprobe nf_tables
        nft add table ip cut
        nft add chain ip cut input '{ type filter hook input priority 0; }'
        nft add rule ip cut input udp dport 4791 drop
        touch "$said/cut.done"
    fi
    sleep 0.2
done
wait $server
status=$?
cat /tmp/server
check_received "the server" "$(sed -n 's/^the server has fetched \([0-9]*\) bytes.*/\1/p' /tmp/server)"
exit $status
