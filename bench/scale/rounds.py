"""What a round of the replicator takes for one device: with nothing to do, over open streams, with objects to fetch.

Servers, stores and replicators are those of `bench.sync`; the seconds of one round are the median of some.
"""

from __future__ import annotations

import itertools
import statistics
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bench.scale.curves import Round
from bench.sync.cluster import Cluster, MakeStore, Node, cluster_of, native
from bench.sync.measure import Measured, Subject, warm_up

REPEATS = 3
LACKED = 100
"""Objects that the device lacks in the round that fetches some."""
_BODY = b"x" * 100
_OLD_S = 60.0
_FAR = 1_000_000_000
_WRITERS = 32


async def rounds(
    devices: int, replicas: int, part_power: int, directory: Path, make: MakeStore = native
) -> tuple[tuple[Round, ...], float]:
    """Rounds of one device among so many, and how many others it shares partitions with."""
    async with cluster_of(devices, replicas, part_power, make, directory) as cluster:
        node = cluster.nodes[0]
        await warm_up(cluster)
        subject = Subject(cluster, "batched", replicas, 0, most=1)
        found = [await _median(subject, "nothing differs")]
        async with subject.keeping() as kept:
            found.append(await _median(kept, "nothing differs, streams open"))
            if replicas > 1:
                _put_elsewhere(cluster, node)
                measured = await kept.measure(f"{LACKED} objects lacking")
                if measured.moved < LACKED:
                    raise RuntimeError(f"{measured.moved} of {LACKED} objects came in the round that was to fetch them")
                found.append(_round(measured))
        mine = (partition for partition, _ in cluster.ring.partitions_of(node.device.id))
        shared = {one.id for partition in mine for one in cluster.ring.primaries(partition)} - {node.device.id}
    return tuple(found), float(len(shared))


async def _median(subject: Subject, kind: str) -> Round:
    several = [_round(await subject.measure(kind)) for _ in range(REPEATS)]
    values = {
        name: statistics.median(getattr(one, name) for one in several)
        for name in ("seconds", "cpu_s", "bytes", "messages", "memory_bytes")
    }
    return Round(kind=kind, **values)


def _round(measured: Measured) -> Round:
    return Round(
        kind=measured.scenario,
        seconds=measured.delay_s,
        cpu_s=measured.cpu_s,
        bytes=measured.kilobytes * 1000,
        messages=measured.messages,
        memory_bytes=measured.peak_mb * 1e6,
    )


def _put_elsewhere(cluster: Cluster, node: Node) -> None:
    """Put objects that belong on a device on all of their other devices."""
    second = time.time() - _OLD_S
    with ThreadPoolExecutor(_WRITERS) as writers:
        waiting: list[Future[int]] = []
        numbers = itertools.count(_FAR)
        while len(waiting) < LACKED:
            number = next(numbers)
            holders = cluster.holders(number)
            others = [device for device in holders if device.id != node.device.id]
            if len(others) < len(holders):
                waiting.append(writers.submit(cluster.put, number, second, _BODY, others))
        for one in waiting:
            one.result()
