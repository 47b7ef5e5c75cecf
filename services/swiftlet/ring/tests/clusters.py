"""Clusters for the tests: regular ones, and hypothesis strategies for irregular ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import strategies as st

from swiftlet.ring import Ring, RingBuilder

HOUR = 500_000
"""Some hour since the epoch at which tests begin."""


def grid(
    zones: int,
    nodes: int,
    devices: int,
    *,
    part_power: int = 10,
    replicas: float = 3,
    overload: float = 0.0,
    seed: int = 0,
    min_part_hours: int = 1,
) -> RingBuilder:
    """A cluster in one region with equal zones, nodes and weights; not yet balanced."""
    builder = RingBuilder(part_power, replicas, min_part_hours, overload, seed)
    for zone in range(zones):
        add_zone(builder, f"z{zone}", nodes, devices)
    return builder


def add_zone(builder: RingBuilder, zone: str, nodes: int, devices: int) -> None:
    """Add a zone of equal nodes."""
    for node in range(nodes):
        for device in range(devices):
            builder.add_device(
                host=f"{zone}-n{node}", port=6200, device=f"d{device}", region="r1", zone=zone, weight=100
            )


@dataclass(frozen=True)
class Place:
    """Where a random device stands; equal places get different ports."""

    region: int
    zone: int
    node: int
    weight: float


WEIGHTS = (1.0, 1.0, 2.0, 3.0, 10.0)

places = st.builds(Place, st.integers(0, 1), st.integers(0, 2), st.integers(0, 2), st.sampled_from(WEIGHTS))


@st.composite
def builders(draw: st.DrawFn, *, whole_replicas: bool = False) -> RingBuilder:
    """A builder with devices in an irregular topology, not yet balanced."""
    replicas = draw(st.sampled_from([1.0, 2.0, 3.0, 4.0] if whole_replicas else [1.0, 2.0, 3.0, 1.5, 2.75, 4.0]))
    builder = RingBuilder(
        draw(st.integers(4, 7)),
        replicas,
        draw(st.integers(0, 3)),
        draw(st.sampled_from([0.0, 0.0, 0.1, 1.0, 1000.0])),
        draw(st.integers(0, 5)),
    )
    for place in draw(st.lists(places, min_size=4, max_size=14)):
        add(builder, place)
    return builder


def add(builder: RingBuilder, place: Place) -> None:
    """Add a device at a place."""
    builder.add_device(
        host=f"r{place.region}z{place.zone}n{place.node}",
        port=6000 + len(builder.devices),
        device="d",
        region=f"r{place.region}",
        zone=f"z{place.zone}",
        weight=place.weight,
    )


def table(ring: Ring) -> list[list[int]]:
    """Per partition the ids of its holders in replica order."""
    return [[device.id for device in ring.primaries(p)] for p in range(ring.partition_count)]


def held(ring: Ring) -> Counter[int]:
    """Replicas per device id."""
    return Counter(id_ for row in ring.rows for id_ in row)
