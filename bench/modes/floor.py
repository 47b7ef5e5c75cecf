"""What copies alone allow: operations a second of table III's mixes if stores and clients did nothing else.

    chrt -r 1 .venv/bin/python -m bench.modes.floor [--scale 50] [--directory /dev/shm]

Measures the processor time of what every body needs on one machine: copies in memory, sockets (both ends), and new
files, which are removed again. What is written goes into three files. On its way it goes through one socket in M1,
whose proxy lends its memory to object servers, and through three in M2; a client that shares memory ("near") copies it
there, and each object server copies it from there. What is read goes through one socket, or is copied once. There are
no digests in it, no frames, no Python, and no processor is ever idle.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.modes.swiftx import COPIES, MB, MIXES, Mix

PIECE = bytes(range(256)) * 4096
FILE_PIECES = 10
SECONDS = 0.7


def copying() -> float:
    """Return processor seconds for each byte that is copied."""
    target, copied, began = bytearray(len(PIECE)), 0, time.process_time()
    while time.process_time() < began + SECONDS:
        target[:] = PIECE
        copied += len(PIECE)
    return (time.process_time() - began) / copied


def filing(directory: Path) -> float:
    """Return processor seconds for each byte of a new file."""
    path, written, began = directory / "file", 0, time.process_time()
    while time.process_time() < began + SECONDS:
        with path.open("wb", buffering=0) as file:
            for _ in range(FILE_PIECES):
                written += file.write(PIECE) or 0
        path.unlink()
    return (time.process_time() - began) / written


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


def most(mix: Mix, scale: float, written: float, read: float) -> float:
    """Return operations a second that all processors can do at most; bytes cost so many processor seconds."""
    objects = sum(count for count, _ in mix.sizes)
    mean = sum(count * size for count, size in mix.sizes) / objects * MB / scale
    return (os.cpu_count() or 1) / (mean * ((mix.create + mix.update) * written + mix.read * read))


def main() -> None:
    """Measure, and print markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=50, help="by which the sizes of the mixes are divided")
    parser.add_argument("--directory", type=Path, help="where files are written; a temporary one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        copy, file, send = copying(), filing(Path(directory)), sending()
    lines = [
        f"GB in a processor second: copied {1e-9 / copy:.1f}, files {1e-9 / file:.1f}, sockets {1e-9 / send:.1f}",
        "",
    ]
    costs = {
        "M1": (send + COPIES * file, send),
        "M2": (COPIES * (send + file), send),
        "M2, near": (copy + COPIES * (copy + file), copy),
    }
    lines += [f"| mix, sizes divided by {arguments.scale:g} | " + " | ".join(costs) + " |", "|---" * 4 + "|"]
    for mix in MIXES:
        rates = (most(mix, arguments.scale, *cost) for cost in costs.values())
        lines.append(f"| {mix.name} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
