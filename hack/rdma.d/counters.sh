# What an RDMA device has received; sourced by the scripts that run in machines.
# shellcheck shell=bash

readonly device=/sys/class/infiniband/rxe0
# Of one packet at most: what eth0's 1500 bytes have room for, as the device sees it.
readonly mtu=1024

received_packets() {
    cat $device/ports/1/hw_counters/rcvd_pkts
}

# What it had received when this was read.
before=$(received_packets)

# check_received WHO BYTES: as many packets as that takes, at least, have come since then.
check_received() {
    local packets=$(($(received_packets) - before))
    echo "$1 has fetched $2 bytes; its RDMA device has received $packets packets of up to $mtu bytes"
    if ((packets * mtu < $2)); then
        echo "error: that is less than was fetched: it has not gone through RDMA"
        exit 1
    fi
}
