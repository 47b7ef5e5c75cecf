"""Memory of a store's processes while many large uploads are under way at once and the disk can't keep up.

    make bench-memory              # or: .venv/bin/python -m bench.dataplane.memory DIRECTORY [--uploads 200]

A standalone store, and a client that announces so many objects of 1 GiB and sends all of them at once, as fast as they
are taken, until `--gib` in all have been; then it holds every connection open with its pipe full, and at last cuts all
of them. The bar is 512 MiB of resident memory per process. Resident memory is what a process has of its own (anonymous)
and what it shares: the transport's memory is shared by the proxy that owns it with the object servers that read from
it, so it is counted in each of them; the column of shared memory tells how much that is. `VmHWM` is the most that the
kernel ever saw.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.dataplane.large import Source, Store
from bench.micro import Measured, report
from bench.peers.processes import family_of

_MIB = 1 << 20
_SEND_BYTES = 1 * _MIB
_SAMPLE_S = 0.5
_GONE_WITHIN_S = 60.0
BAR_MIB = 512


@dataclass
class Memory:
    """The most of one process, in MiB."""

    resident: float = 0.0
    own: float = 0.0
    shared: float = 0.0


@dataclass
class Watch:
    """Samples of all processes of a store."""

    store: Store
    most: dict[str, Memory] = field(default_factory=dict)
    _at: float = 0.0

    def processes(self) -> dict[str, int]:
        """Process ids by name; workers of the proxy have numbers."""
        found = {}
        for name, pid in self.store.cluster.pids.items():
            for number, one in enumerate(family_of(pid)):
                found[f"{name}-worker-{number}" if number else name] = one
        return found

    def sample(self) -> None:
        """Look at all of them, now and then."""
        if time.monotonic() < self._at:
            return
        self._at = time.monotonic() + _SAMPLE_S
        for name, pid in self.processes().items():
            now, most = status(pid), self.most.setdefault(name, Memory())
            most.resident = max(most.resident, now["VmHWM"])
            most.own = max(most.own, now["RssAnon"])
            most.shared = max(most.shared, now["RssShmem"])


def status(pid: int) -> dict[str, float]:
    """Memory of a process in MiB; nothing of one that is gone."""
    found = dict.fromkeys(("VmHWM", "VmRSS", "RssAnon", "RssShmem"), 0.0)
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return found
    for name, _, value in (line.partition(":") for line in lines):
        if name in found:
            found[name] = int(value.split()[0]) / 1024
    return found


class Upload:
    """One connection that sends an object."""

    def __init__(self, store: Store, number: int) -> None:
        self.connection = store.connect()
        head = store.head("PUT", {"Content-Length": str(store.source.size)})
        self.connection.sendall(head.replace(b"/large/0 ", f"/large/upload-{number} ".encode()))
        self.connection.setblocking(False)
        self.sent = 0

    def send(self, source: Source) -> int:
        """Send as much as the socket accepts at once; a refusal is an error."""
        offset = self.sent % len(source.block)
        count = min(_SEND_BYTES, source.size - self.sent, len(source.block) - offset)
        try:
            sent = os.sendfile(self.connection.fileno(), source.file, offset, count) if count else 0
        except BlockingIOError:
            return 0
        self.sent += sent
        return sent

    def refusal(self) -> bytes:
        """What the store has said already, which it should not."""
        try:
            return self.connection.recv(4096)
        except BlockingIOError:
            return b""


def run(store: Store, count: int, limit: int, hold_s: float, watch: Watch) -> list[Upload]:
    """Send until `limit` bytes have been sent in all, then stand still for a while."""
    uploads = [Upload(store, number) for number in range(count)]
    waiting = selectors.DefaultSelector()
    for upload in uploads:
        waiting.register(upload.connection, selectors.EVENT_WRITE, upload)
    sent, ends = 0, None
    while ends is None or time.monotonic() < ends:
        for key, _ in waiting.select(_SAMPLE_S):
            sent += key.data.send(store.source) if ends is None else 0
        if ends is None and sent >= limit:
            ends = time.monotonic() + hold_s
            for upload in uploads:
                waiting.unregister(upload.connection)
        watch.sample()
    for upload in uploads:
        refusal = upload.refusal()
        if refusal:
            raise RuntimeError(f"an upload was refused: {refusal.decode('latin-1')}")
    return uploads


def large_files(store: Store) -> int:
    """Bytes of objects that are not finished, on all devices."""
    total = 0
    for file in store.cluster.data.rglob("large/*/*"):
        # They go while they are counted.
        with suppress(FileNotFoundError):
            total += file.stat().st_blocks * 512
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the store's data goes")
    parser.add_argument("--uploads", type=int, default=200, help="at once (default 200)")
    parser.add_argument("--mib", type=int, default=1024, help="size of each (default 1024)")
    parser.add_argument("--gib", type=float, default=8.0, help="to be sent in all, three times that on the disk")
    parser.add_argument("--hold", type=float, default=10.0, help="seconds to stand still for (default 10)")
    arguments = parser.parse_args()
    store = Store(arguments.directory, Source(arguments.mib * _MIB))
    try:
        watch = Watch(store)
        rest = {name: status(pid) for name, pid in watch.processes().items()}
        load, began = os.getloadavg()[0], time.monotonic()
        uploads = run(store, arguments.uploads, int(arguments.gib * 1024 * _MIB), arguments.hold, watch)
        took = time.monotonic() - began - arguments.hold
        sent = sorted(upload.sent / _MIB for upload in uploads)
        on_disk = large_files(store)
        for upload in uploads:
            # Cut, not closed: as a client that is gone.
            upload.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            upload.connection.close()
        cut = time.monotonic()
        while large_files(store) and time.monotonic() - cut < _GONE_WITHIN_S:
            time.sleep(_SAMPLE_S)
        gone_s, left = time.monotonic() - cut, large_files(store)
        after = {name: status(pid) for name, pid in watch.processes().items()}
    finally:
        store.cluster.stop()
    print(f"{len(sent)} uploads of {arguments.mib} MiB at once; load (1 minute) {load:.1f} at the beginning")
    each = f"{sent[0]:.0f} to {sent[-1]:.0f} MiB of each"
    print(f"sent in {took:.0f} s: {sum(sent) / 1024:.1f} GiB, {each}; on the disk {on_disk / 2**30:.1f} GiB")
    print(f"cut: {left} bytes left on the disk after {gone_s:.1f} s\n")
    print("| process | MiB at rest | most (VmHWM) | of its own | shared memory | after |\n|---|---|---|---|---|---|")
    for name, most in sorted(watch.most.items()):
        columns = (rest[name]["VmRSS"], most.resident, most.own, most.shared, after[name]["VmRSS"])
        print(f"| {name} | " + " | ".join(f"{value:.0f}" for value in columns) + " |")
    report(
        "dataplane-memory",
        [
            Measured(f"{name}, {when}", "MiB", (round(value),))
            for name, most in sorted(watch.most.items())
            for when, value in (("at rest", rest[name]["VmRSS"]), ("at most", most.resident))
        ],
    )
    worst = max(most.resident for most in watch.most.values())
    print(f"\nthe most of any process: {worst:.0f} MiB, {'within' if worst <= BAR_MIB else 'ABOVE'} {BAR_MIB} MiB")


if __name__ == "__main__":
    main()
