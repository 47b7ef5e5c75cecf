# In a machine: suite.sh SHOWN. The tests over verbs, and whether they were.
# shellcheck shell=bash
shown=$1
# shellcheck source=hack/rdma.d/counters.sh
source "$shown/counters.sh"
export SWIFTLET_RDMA=rc UCX_LOG_LEVEL=error RUST_BACKTRACE=0

# run_tests PROGRAM: all its tests. What fails is run once more, alone: on a busy host the machine may stand still for longer
# than the 1.5 s for which a peer may be silent. What fails twice fails.
run_tests() {
    local failed test
    "$shown/$1" --test-threads 1 >/tmp/output 2>&1 && cat /tmp/output && return
    cat /tmp/output
    failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' /tmp/output)
    [[ -n $failed ]] || return 1
    for test in $failed; do
        echo "once more: $test"
        "$shown/$1" --exact "$test" || return 1
    done
}

status=0
run_tests swiftlet_transport_ucx || status=1
run_tests rdma || status=1
# Of the many bodies, only those of one test, which says how much it fetches.
check_received "a pair in the tests of RDMA" $((8 << 20))
# Here it is requests that are looked at; in the tests of RDMA, above, how soon the loss of a peer is noticed.
SWIFTLET_SILENCE_MS=4500 run_tests conformance || status=1
SWIFTLET_SILENCE_MS=10000 run_tests object || status=1
echo "all in all: $(($(received_packets) - before)) packets"
exit $status
