#!/bin/bash
# In a machine: disk.sh COMMAND. What becomes of the disk /dev/vdb, and of the file system on it, /mnt/disk.
#
#   new                 an empty file system, on a disk that works
#   cut, error, drop    from now on everything fails, or writes fail, or they are dropped and said to be done
#   restore             the disk works again, with what it has kept, and the file system is mounted anew
#   record              as `new`, and all writes and flushes go to the log on /dev/vdc too
#   mark TEXT           into the log
#   recorded            the log is over; /dev/vdd is as /dev/vdb was when it began
#   show, hide          what has been replayed to /dev/vdd, as a file system /mnt/replay, and away with it: /dev/vdd stays as it is
set -euo pipefail
sectors=$(blockdev --getsz /dev/vdb)

# What is on its way when the table is swapped is not waited for.
swap() {
    dmsetup suspend --noflush --nolockfs disk
    dmsetup load disk --table "0 $sectors $1"
    dmsetup resume disk
}

# begin TABLE: an empty file system on an empty disk.
begin() {
    umount /mnt/disk 2>/dev/null || true
    [[ ! -e /dev/mapper/disk ]] || dmsetup remove --retry disk
    blkdiscard --force --zeroout /dev/vdb
    dmsetup create disk --table "0 $sectors $1"
    mkfs.xfs -q -K /dev/mapper/disk
    mount /dev/mapper/disk /mnt/disk
    mkdir /mnt/disk/store
    sync -f /mnt/disk
}

case $1 in
new) begin "linear /dev/vdb 0" ;;
cut) swap error ;;
error) swap "flakey /dev/vdb 0 0 3600 1 error_writes" ;;
drop) swap "flakey /dev/vdb 0 0 3600 1 drop_writes" ;;
restore)
    umount /mnt/disk
    swap "linear /dev/vdb 0"
    blockdev --flushbufs /dev/mapper/disk
    mount /dev/mapper/disk /mnt/disk
    ;;
record)
    blkdiscard --force --zeroout /dev/vdd
    begin "log-writes /dev/vdb /dev/vdc"
    ;;
mark) dmsetup message disk 0 mark "$2" ;;
recorded)
    umount /mnt/disk
    dmsetup remove --retry disk
    blockdev --flushbufs /dev/vdc
    ;;
show)
    blockdev --flushbufs /dev/vdd
    dmsetup create shown --table "0 $sectors snapshot /dev/vdd /dev/vde N 8"
    mount /dev/mapper/shown /mnt/replay
    ;;
hide)
    umount /mnt/replay
    dmsetup remove --retry shown
    ;;
*) echo "unknown: $1" >&2 && exit 2 ;;
esac
