"""What is done to the disk and to the network of one server, of whichever store: throttled, filled, slow, lossy."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

SLOW_DISK_BYTES_PER_S, SLOW_DISK_IOS = 2_000_000, 40
SLOW_NETWORK = "20mbit"
LOST_PACKETS = 3
"""So many of a hundred packets are lost."""
FULL_DISK_BYTES = 3 << 30
"""Of memory, for a file system that also holds a third and more of what is written in all phases."""
_LEAST_PIECE = 4096
_BLKIO = Path("/sys/fs/cgroup/blkio")
Place = tuple[str, int]
"""An address and a port at which a server is reached."""


class NotHereError(Exception):
    """This machine can't do it; the message says what is missing."""


def throttle_disk(folder: Path, pids: Iterable[int], undo: ExitStack) -> None:
    """Put processes into a group that may read and write little on the disk that a folder is on."""
    if not (_BLKIO / "blkio.throttle.write_bps_device").exists():
        raise NotHereError("there is no controller that slows a process's disk (blkio of cgroups version 1)")
    number = os.stat(folder).st_dev
    disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not disk.exists():
        raise NotHereError("the store is on no disk; choose another --directory")
    if (disk / "partition").exists():
        disk = disk.resolve().parent
    name = (disk / "dev").read_text().strip()
    _GROUP.mkdir()
    undo.callback(release_disk)
    for limit, value in (
        ("write_bps", SLOW_DISK_BYTES_PER_S),
        ("read_bps", SLOW_DISK_BYTES_PER_S),
        ("write_iops", SLOW_DISK_IOS),
        ("read_iops", SLOW_DISK_IOS),
    ):
        (_GROUP / f"blkio.throttle.{limit}_device").write_text(f"{name} {value}")
    for pid in pids:
        (_GROUP / "cgroup.procs").write_text(str(pid))


_GROUP = _BLKIO / f"swiftlet-degrade-{os.getpid()}"


def release_disk() -> None:
    """Let the processes in that group have the disk for themselves again."""
    if not _GROUP.exists():
        return
    for pid in (_GROUP / "cgroup.procs").read_text().split():
        (_BLKIO / "cgroup.procs").write_text(pid)
    _GROUP.rmdir()


def mount_small_disk(place: Path, undo: ExitStack) -> None:
    """Mount a small file system over an empty folder."""
    run("mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES}", "tmpfs", str(place))
    undo.callback(subprocess.run, ["umount", str(place)], check=False)


def fill_disk(place: Path) -> None:
    """Take all room of a file system, in pieces: the store takes some of it at the same time."""
    with (place / "ballast").open("wb") as file:
        size, piece = 0, 64 << 20
        while piece >= _LEAST_PIECE:
            try:
                os.posix_fallocate(file.fileno(), size, piece)
                size += piece
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece //= 2


def free_disk(place: Path) -> None:
    """Give back what `fill_disk` has taken."""
    (place / "ballast").unlink()


def slow_network(places: Sequence[Place]) -> None:
    """Let little through to and from these places."""
    _own_network()
    run("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "10")
    run("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", "1:10", "htb", "rate", "40gbit")
    run("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", "1:20", "htb", "rate", SLOW_NETWORK)
    for address, port in places:
        for side in ("dst", "src"):
            run(
                *("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32"),
                *("match", "ip", side, f"{address}/32"),
                *("match", "ip", f"{side[0]}port", str(port), "0xffff", "flowid", "1:20"),
            )


def quicken_network() -> None:
    """Let everything through again."""
    run("tc", "qdisc", "del", "dev", "lo", "root")


def lose_packets(places: Sequence[Place]) -> None:
    """Drop some packets to and from these places."""
    _own_network()
    run("nft", "add table inet degrade")
    run("nft", "add chain inet degrade input { type filter hook input priority 0; }")
    for address, port in places:
        for side in ("d", "s"):
            match = f"ip {side}addr {address} tcp {side}port {port}"
            run("nft", f"add rule inet degrade input {match} numgen random mod 100 < {LOST_PACKETS} drop")


def lose_no_packets() -> None:
    """Drop no packets any more."""
    run("nft", "delete table inet degrade")


def mend_network() -> None:
    """Undo what a mode that failed has left in a network namespace of our own."""
    if is_own_network():
        for command in (["tc", "qdisc", "del", "dev", "lo", "root"], ["nft", "delete", "table", "inet", "degrade"]):
            subprocess.run(command, capture_output=True, check=False)


def is_own_network() -> bool:
    """Whether this process has a network namespace of its own: one without a way to other machines."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def _own_network() -> None:
    """Refuse to change the machine's own network."""
    if not is_own_network():
        raise NotHereError("it is for a network namespace of its own: unshare --net --mount")


def run(*command: str) -> None:
    """Run a program of this machine; NotHereError with what it says when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotHereError(f"{' '.join(command[:3])}: {done.stderr.strip() or 'it failed'}")
