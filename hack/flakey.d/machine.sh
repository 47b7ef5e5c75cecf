# In a machine: machine.sh SHOWN ROUNDS TEST... The store's tests on a disk that fails.
# shellcheck shell=bash
shown=$1
export SWIFTLET_STORE_DISK_ROUNDS=$2 SWIFTLET_STORE_DISK=/tmp/disk SWIFTLET_STORE_DISK_ROOT=/mnt/disk/store
shift 2
modprobe -a dm-flakey dm-log-writes dm-snapshot xfs
mkdir -p /mnt/disk /mnt/replay
install -m 755 "$shown/disk.sh" $SWIFTLET_STORE_DISK
status=0
for test; do
    begun=$SECONDS
    "$shown/power" --exact "$test" --nocapture || status=1
    echo "$test: $((SECONDS - begun)) s"
done
[[ $status -eq 0 ]] || dmesg | tail -n 20
exit $status
