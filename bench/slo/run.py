"""Downloads of a static large object of many segments against those of a plain object of the same bytes.

    make bench-slo                 # or: .venv/bin/python -m bench.slo.run --segments 1000 --kib 1024 --rounds 5
    .venv/bin/python -m bench.slo.run --segments 100 --kib 10 --nested 10 --rounds 31

Starts a store of its own with one API process, stores the same bytes as one object and as segments with a manifest,
and reads both in turns over one connection, so that what else the machine does falls on both alike. Prints a markdown
table. The ratio of medians is the measure, on a crowded machine beside that of the fastest rounds; processor time of
the store's processes tells what a segment costs.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.micro import Measured, report
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_READ_BYTES = 1 << 20
_ENOUGH_BYTES = 32 << 20
"""Small objects are read several times in a row, until so much has come: processor time is told in ticks."""


@dataclass(frozen=True)
class Download:
    """The time and the processor time that a download took."""

    seconds: float
    cpu_s: float
    """Processor seconds of the store's processes."""


class Store:
    """A store with the two objects in it."""

    def __init__(self, cluster: Cluster, segments: int, size: int, nested: int = 0) -> None:
        """Store them; `size` bytes a segment. The large object is made of `nested` others if that is not 0."""
        self.cluster = cluster
        self.client = Client(cluster.endpoint, cluster.user, cluster.key)
        self.size = segments * size
        for container in ("slo", "parts"):
            assert self.client.call("PUT", container).status in {201, 202}
        block = random.Random(1).randbytes(size)
        entries: list[dict[str, object]] = []
        digest = hashlib.md5(usedforsecurity=False)
        with tempfile.TemporaryFile() as whole:
            for number in range(segments):
                piece = number.to_bytes(8, "big") + block[8:]
                name = f"{number:05}"
                assert self.client.call("PUT", f"parts/{name}", body=piece).status == 201
                etag = hashlib.md5(piece, usedforsecurity=False).hexdigest()
                entries.append({"path": f"/parts/{name}", "etag": etag, "size_bytes": size})
                digest.update(piece)
                whole.write(piece)
            whole.seek(0)
            self._put_plain(whole)
        if nested:
            each = -(-segments // nested)
            groups = [entries[start : start + each] for start in range(0, segments, each)]
            for number, group in enumerate(groups):
                self._put_manifest(f"parts/m{number:03}", group)
            entries = [{"path": f"/parts/m{number:03}"} for number in range(len(groups))]
        self._put_manifest("slo/large", entries)
        self.md5 = digest.hexdigest()

    def _put_manifest(self, path: str, entries: list[dict[str, object]]) -> None:
        body = json.dumps(entries).encode()
        assert self.client.call("PUT", path, body=body, query="multipart-manifest=put").status == 201

    def _put_plain(self, file: object) -> None:
        connection = self._connection()
        headers = {"X-Auth-Token": self.client.token, "Content-Length": str(self.size)}
        connection.request("PUT", f"{self.client.base}/slo/plain", body=file, headers=headers)  # type: ignore[arg-type]
        assert connection.getresponse().status == 201
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.cluster.endpoint)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)

    def check(self, name: str) -> None:
        """Read an object and compare its bytes with what was stored."""
        digest = hashlib.md5(usedforsecurity=False)
        self._read(name, digest.update)
        assert digest.hexdigest() == self.md5

    def download(self, name: str) -> Download:
        """Read an object to its end; only its length is looked at. The mean of several, if it is small."""
        cpu, began = self._cpu(), time.monotonic()
        times = max(1, _ENOUGH_BYTES // self.size)
        for _ in range(times):
            self._read(name, lambda chunk: None)
        return Download((time.monotonic() - began) / times, (self._cpu() - cpu) / times)

    def _read(self, name: str, take: Callable[[memoryview], object]) -> None:
        connection = self._connection()
        connection.request("GET", f"{self.client.base}/slo/{name}", headers={"X-Auth-Token": self.client.token})
        response = connection.getresponse()
        assert response.status == 200
        buffer, left = memoryview(bytearray(_READ_BYTES)), self.size
        while count := response.readinto(buffer):
            left -= count
            take(buffer[:count])
        assert left == 0
        connection.close()

    def _cpu(self) -> float:
        """Seconds of processor time that the store's processes have used."""
        used = 0
        for pid in self.cluster.pids.values():
            for one in (pid, *_children(pid)):
                fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
                used += int(fields[11]) + int(fields[12])
        return used * _TICK_S


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measure(store: Store, segments: int, rounds: int) -> list[Measured]:
    """Measure both in turns, whose order changes from round to round, and return what came out."""
    found: dict[str, list[Download]] = {"plain": [], "large": []}
    for name in found:
        store.check(name)  # Both from page cache from here on.
    print(
        f"| {segments} segments of {store.size // segments >> 10} KiB "
        "| plain, MB/s | large, MB/s | plain, CPU s | large, CPU s | load |"
    )
    print("|---|---|---|---|---|---|")
    for number in range(rounds):
        for name in sorted(found, reverse=number % 2 == 0):
            found[name].append(store.download(name))
        plain, large = found["plain"][-1], found["large"][-1]
        rates = " | ".join(f"{store.size / one.seconds / 1e6:.0f}" for one in (plain, large))
        print(
            f"| round {number + 1} | {rates} | {plain.cpu_s:.3g} | {large.cpu_s:.3g} | {os.getloadavg()[0]:.1f} |",
            flush=True,
        )
    medians = {name: statistics.median(one.seconds for one in list_) for name, list_ in found.items()}
    cpu = {name: statistics.median(one.cpu_s for one in list_) for name, list_ in found.items()}
    print(f"\nspeed of the large object: {medians['plain'] / medians['large']:.0%} of the plain one's (medians); ")
    fastest = {name: min(one.seconds for one in list_) for name, list_ in found.items()}
    print(f"{fastest['plain'] / fastest['large']:.0%} by the fastest round of each;")
    print(
        f"processor time: {cpu['large'] / cpu['plain']:.0%}, "
        f"{(cpu['large'] - cpu['plain']) / segments * 1e3:.2f} ms a segment"
    )
    what = f"{segments:,} segments of {store.size // segments >> 10:,} KiB"
    pairs = list(zip(found["plain"], found["large"], strict=True))
    return [
        *(
            Measured(f"{what}, {name}", "MB/s", tuple(store.size / one.seconds / 1e6 for one in each))
            for name, each in found.items()
        ),
        Measured(f"{what}, speed by the plain one's", "%", tuple(a.seconds / b.seconds * 100 for a, b in pairs)),
        Measured(f"{what}, processor time by the plain one's", "%", tuple(b.cpu_s / a.cpu_s * 100 for a, b in pairs)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--kib", type=int, default=1024, help="of a segment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nested", type=int, default=0, help="manifests that the large object is made of")
    parser.add_argument("--crowded", action="store_true", help="report it as measured while the machine does more")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-slo-"))
    try:
        cluster = start_cluster(root, "--workers", "1")
        try:
            store = Store(cluster, given.segments, given.kib << 10, given.nested)
            told = measure(store, given.segments, given.rounds)
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(root)
    if given.crowded:
        report("slo-crowded", told)
    else:
        report("slo", told)


if __name__ == "__main__":
    main()
