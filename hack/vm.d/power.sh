# In a machine: power.sh PROGRAM. The store's test on a file system whose disk, /dev/vdb, is cut off and comes back.
# shellcheck shell=bash
program=$1
modprobe -a dm-flakey xfs
sectors=$(blockdev --getsz /dev/vdb)
dmsetup create disk --table "0 $sectors linear /dev/vdb 0"
mkfs.xfs -q /dev/mapper/disk
mkdir -p /mnt/disk
mount /dev/mapper/disk /mnt/disk
mkdir /mnt/disk/store

cat >/tmp/power <<END
#!/bin/bash
set -e
case \$1 in
cut) # What is on its way fails, and everything after it. The device keeps what it has.
    dmsetup suspend --noflush --nolockfs disk
    dmsetup load disk --table "0 $sectors error"
    dmsetup resume disk
    ;;
restore)
    umount /mnt/disk
    dmsetup suspend --noflush --nolockfs disk
    dmsetup load disk --table "0 $sectors linear /dev/vdb 0"
    dmsetup resume disk
    blockdev --flushbufs /dev/mapper/disk
    mount /dev/mapper/disk /mnt/disk
    ;;
esac
END
chmod 755 /tmp/power
SWIFTLET_STORE_POWER=/tmp/power SWIFTLET_STORE_POWER_ROOT=/mnt/disk/store \
    "$program" --exact power_lost_at_random_moments --nocapture
