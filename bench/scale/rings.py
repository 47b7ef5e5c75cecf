"""Measures what a ring takes: its file, its memory, the processor to build it and to find devices by it."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Sequence

from bench.scale.curves import REPLICAS, Operation, Point
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring import codec as codecs

DEVICES_PER_NODE, ZONES = 4, 4
_HOUR = 480_000
_LOOKUPS = 20_000


def builder_of(part_power: int, devices: int, replicas: float = REPLICAS) -> RingBuilder:
    """A builder of a ring over devices of one weight, four a node, in four zones."""
    builder = RingBuilder(part_power, min(replicas, devices), 1)
    for number in range(devices):
        node, place = divmod(number, DEVICES_PER_NODE)
        builder.add_device(
            host=f"h{node}",
            port=1,
            device=f"d{place}",
            region="1",
            zone=f"{node % ZONES}",
            weight=1,
        )
    return builder


def point(part_power: int, devices: int) -> Point:
    """Measure a ring over so many devices, with its size at `at`."""
    builder = builder_of(part_power, devices)
    began = time.process_time()
    builder.rebalance(_HOUR)
    built_s = time.process_time() - began
    data = codecs.encode(builder.ring)
    began = time.process_time()
    ring = codecs.decode(data)
    read_s = time.process_time() - began
    del ring
    tracemalloc.start()
    ring = codecs.decode(data)
    memory_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Point(
        at={"part_power": part_power, "devices": devices, "assignments": sum(map(len, ring.rows))},
        operations=tuple(_lookups(ring, devices)),
        amounts={
            "ring_file_bytes": len(data),
            "ring_memory_bytes": memory_bytes,
            "ring_build_cpu_s": built_s,
            "ring_read_cpu_s": read_s,
        },
    )


def _lookups(ring: Ring, devices: int) -> list[Operation]:
    digests = [os.urandom(16) for _ in range(_LOOKUPS)]
    found = [timed("find primaries", digests, lambda digest: ring.primaries(ring.partition_of(digest)))]
    if devices > REPLICAS:
        handoff = timed("find a handoff", digests[:2000], lambda digest: next(ring.handoffs(ring.partition_of(digest))))
        found.append(handoff)
    return found


def timed(name: str, values: Sequence[bytes], work: Callable[[bytes], object]) -> Operation:
    """Do something with each value, and say what it took."""
    times = []
    cpu_s, began_s = time.process_time(), time.perf_counter()
    for value in values:
        before_s = time.perf_counter()
        work(value)
        times.append(time.perf_counter() - before_s)
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return operation(name, times, seconds, cpu_s)


def operation(name: str, times: list[float], seconds: float, cpu_s: float) -> Operation:
    """Return what so many operations took, of the time and the processor time of all."""
    ordered, count = sorted(times), len(times)
    return Operation(
        operation=name,
        per_second=count / seconds,
        p50_s=ordered[count // 2],
        p99_s=ordered[min(count - 1, count * 99 // 100)],
        cpu_s=cpu_s / count,
    )
