"""A large object passes through every process in bounded memory, up and down.

It has 256 MiB; `MEMORY_GIB=5` makes it as large as one object may be (`make memory`).
"""

from __future__ import annotations

import hashlib
import http.client
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from e2e.standalone.cluster import Cluster
from e2e.standalone.wire import Client

MIB = 1 << 20
SIZE = int(float(os.environ.get("MEMORY_GIB", "0.25")) * (1 << 30))
BLOCK = bytes(range(256)) * (MIB // 256)
ALLOWED = 64 * MIB


def processes(cluster: Cluster) -> list[psutil.Process]:
    """Every process of the cluster, workers included."""
    parents = [psutil.Process(pid) for pid in cluster.pids.values()]
    found = {process.pid: process for parent in parents for process in (parent, *parent.children(recursive=True))}
    return list(found.values())


def forget_peaks(found: list[psutil.Process]) -> dict[int, int]:
    """Start measuring: resets the kernel's peak of each process; resident bytes by pid now."""
    for process in found:
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return {process.pid: process.memory_info().rss for process in found}


def peak(pid: int) -> int:
    """The most resident bytes since `forget_peaks`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no VmHWM of process {pid}")


def blocks() -> Iterator[bytes]:
    """Return the object's bytes, each MiB different."""
    for number in range(SIZE // MIB):
        yield number.to_bytes(8, "big") + BLOCK[8:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_large_object_in_64_mib(own_cluster: Cluster) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    client.call("PUT", "huge")
    client.call("PUT", "huge/warm-up", body=b"x" * (4 * MIB))
    client.call("GET", "huge/warm-up")
    found = processes(own_cluster)
    before = forget_peaks(found)

    parts = urlsplit(own_cluster.endpoint)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
    sent = hashlib.md5(usedforsecurity=False)

    def hashed() -> Iterator[bytes]:
        for block in blocks():
            sent.update(block)
            yield block

    headers = {"X-Auth-Token": client.token, "Content-Length": str(SIZE)}
    connection.request("PUT", f"{client.base}/huge/one", hashed(), headers)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    assert answer.headers["Etag"] == sent.hexdigest()
    answer.read()

    connection.request("GET", f"{client.base}/huge/one", headers={"X-Auth-Token": client.token})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Length"]) == (200, str(SIZE))
    received = hashlib.md5(usedforsecurity=False)
    while chunk := answer.read(MIB):
        received.update(chunk)
    connection.close()
    assert received.digest() == sent.digest()

    growth = {process.pid: peak(process.pid) - before[process.pid] for process in found}
    worst = max(growth.values())
    print(f"peak growth per process in MiB: {sorted(round(g / MIB, 1) for g in growth.values())}")
    assert worst <= ALLOWED, {p.pid: (" ".join(p.cmdline()[-4:]), growth[p.pid] // MIB) for p in found}
    assert client.call("DELETE", "huge/one").status == 204
