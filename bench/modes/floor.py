"""What copies alone allow: operations a second of table III's mixes if stores and clients did nothing else, then with
the digests that each mode has to make, and what the disk would allow with a sync of each file.

    chrt -r 1 .venv/bin/python -m bench.modes.floor [--scale 50] [--directory /dev/shm]

Measures the processor time of what every body needs on one machine: copies in memory, sockets (both ends), and new
files, which are removed again. What is written goes into three files. On its way it goes through one socket in M1,
whose proxy lends its memory to object servers, and through three in M2; a client that shares memory ("near") copies it
there, and each object server copies it from there. What is read goes through one socket, or is copied once. There are
no frames in it, no Python, and no processor is ever idle.

With digests: of what is written, each of the three devices makes XXH3, and so do the client and M1's proxy. What is
read is copied out of its file, and hashed by the device and by the client. Where ETags are MD5 it is made by the client
that writes, by M1's proxy, and by the client that reads through it; directly, reads are compared by XXH3.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import xxhash

from bench.micro import Measured, report
from bench.modes.swiftx import COPIES, MB, MIXES, Mix

PIECE = bytes(range(256)) * 4096
FILE_PIECES = 10
SECONDS = 0.7


def per_byte(step: Callable[[], int], clock: Callable[[], float] = time.process_time) -> float:
    """Return seconds of the clock for each byte that steps do, whose number a step returns."""
    done, began = 0, clock()
    while clock() < began + SECONDS:
        done += step()
    return (clock() - began) / done


def copying() -> float:
    """Return processor seconds for each byte that is copied."""
    target = bytearray(len(PIECE))

    def step() -> int:
        target[:] = PIECE
        return len(PIECE)

    return per_byte(step)


def filing(directory: Path) -> float:
    """Return processor seconds for each byte of a new file."""
    path = directory / "file"

    def step() -> int:
        written = _write(path)
        path.unlink()
        return written

    return per_byte(step)


def syncing(directory: Path) -> float:
    """Return seconds, not those of a processor, for each byte of a new file that is synced."""
    path = directory / "file"

    def step() -> int:
        return _write(path, sync=True)

    return per_byte(step, time.monotonic)


def _write(path: Path, *, sync: bool = False) -> int:
    """Write a file anew, and return its bytes."""
    with path.open("wb", buffering=0) as file:
        written = sum(file.write(PIECE) or 0 for _ in range(FILE_PIECES))
        if sync:
            os.fsync(file.fileno())
    return written


def hashing(update: Callable[[bytes], object]) -> float:
    """Return processor seconds for each byte that is added to a digest."""

    def step() -> int:
        update(PIECE)
        return len(PIECE)

    return per_byte(step)


def sending() -> float:
    """Return processor seconds for each byte that goes through a TCP connection to this machine, of both ends."""
    received = 0
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()

        def receive() -> None:
            nonlocal received
            into = bytearray(len(PIECE))
            with receiver:
                while got := receiver.recv_into(into):
                    received += got

        thread = threading.Thread(target=receive)
        thread.start()
        began, end = time.process_time(), time.monotonic() + SECONDS
        while time.monotonic() < end:
            sender.sendall(PIECE)
        sender.shutdown(socket.SHUT_WR)
        thread.join()
    return (time.process_time() - began) / received


def mean_bytes(mix: Mix, scale: float) -> float:
    """Return the mean size of a mix's objects."""
    objects = sum(count for count, _ in mix.sizes)
    return sum(count * size for count, size in mix.sizes) / objects * MB / scale


def most(mix: Mix, scale: float, written: float, read: float) -> float:
    """Return operations a second that all processors can do at most; bytes cost so many processor seconds."""
    cost = (mix.create + mix.update) * written + mix.read * read
    return (os.cpu_count() or 1) / (mean_bytes(mix, scale) * cost)


def table(scale: float, costs: dict[str, tuple[float, float]]) -> list[str]:
    """Return markdown: operations a second at most, for what a byte that is written or read costs in each mode."""
    lines = [f"| mix, sizes divided by {scale:g} | " + " | ".join(costs) + " |", "|---" * (len(costs) + 1) + "|"]
    for mix in MIXES:
        rates = (most(mix, scale, *cost) for cost in costs.values())
        lines.append(f"| {mix.name} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    return lines


def main() -> None:
    """Measure, and print markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=50, help="by which the sizes of the mixes are divided")
    parser.add_argument("--directory", type=Path, help="where files are written; a temporary one by default")
    parser.add_argument("--disk", type=Path, help="where files are synced; the present directory by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        copy, file, send = copying(), filing(Path(directory)), sending()
    with tempfile.TemporaryDirectory(dir=arguments.disk or Path()) as directory:
        sync = syncing(Path(directory))
    md5, xxh3 = hashing(hashlib.md5(usedforsecurity=False).update), hashing(xxhash.xxh3_128().update)
    costs = {
        "M1": (send + COPIES * file, send),
        "M2": (COPIES * (send + file), send),
        "M2, near": (copy + COPIES * (copy + file), copy),
    }
    compared = copy + 2 * xxh3
    digested = {
        "M1": (costs["M1"][0] + (2 + COPIES) * xxh3, send + compared),
        "M2": (costs["M2"][0] + (1 + COPIES) * xxh3, send + compared),
        # It is copied out of its file into the memory that is shared.
        "M2, near": (costs["M2, near"][0] + (1 + COPIES) * xxh3, compared),
    }
    with_md5 = {mode: (written + md5, read) for mode, (written, read) in digested.items()}
    with_md5["M1"] = (with_md5["M1"][0] + md5, with_md5["M1"][1] + md5)
    speeds = {"copied": copy, "files": file, "sockets": send, "MD5": md5, "XXH3": xxh3}
    lines = ["GB in a processor second: " + ", ".join(f"{name} {1e-9 / cost:.1f}" for name, cost in speeds.items())]
    lines += ["", "Copies alone:", "", *table(arguments.scale, costs)]
    lines += ["", "With digests:", "", *table(arguments.scale, digested)]
    lines += ["", "With MD5 as ETags:", "", *table(arguments.scale, with_md5)]
    lines += ["", f"Three synced files of what is written, at {1e-9 / sync:.2f} GB/s of this disk:", ""]
    for mix in MIXES:
        written = mean_bytes(mix, arguments.scale) * (mix.create + mix.update) * COPIES
        lines.append(f"- {mix.name}: {1 / (written * sync):,.0f} operations a second at most")
    sys.stdout.write("\n".join(lines) + "\n")
    kinds = {"copies alone": costs, "and digests by XXH3": digested, "and MD5 as ETags": with_md5}
    report("modes-floor", list(reported(arguments.scale, kinds, sync)))


def reported(scale: float, kinds: Mapping[str, Mapping[str, tuple[float, float]]], sync: float) -> Iterator[Measured]:
    """Yield the bounds of each mix as the page has them; `sync` is what a byte of a synced file takes."""
    for mix in MIXES:
        for kind, by_mode in kinds.items():
            for mode, cost in by_mode.items():
                yield Measured(f"mix {mix.name}, {kind}, {mode}", "1/s", (most(mix, scale, *cost),))
        written = mean_bytes(mix, scale) * (mix.create + mix.update) * COPIES
        what = f"mix {mix.name}, three synced files on this disk, at {1e-9 / sync:.2f} GB/s"
        yield Measured(what, "1/s", (1 / (written * sync),))


if __name__ == "__main__":
    main()
