"""Asking a ring: partitions, holders, neighbours, handoffs; and what a loaded ring costs."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings

from swiftlet.ring import Ring, RingBuilder, RingError, codec
from swiftlet.ring.model import Coding
from swiftlet.ring.tests.clusters import HOUR, builders, grid, held


def built(**shape: int) -> Ring:
    builder = grid(4, 2, 2, **shape)
    builder.rebalance(HOUR)
    return builder.ring


def test_a_partition_is_the_top_bits_of_the_digest() -> None:
    ring = built(part_power=10)
    assert ring.partition_of(b"\x00" * 16) == 0
    assert ring.partition_of(b"\xff" * 16) == 1023
    assert ring.partition_of(b"\x80\x40" + b"\x00" * 14) == 0b1000000001
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        ring.partition_of(b"abc")


@given(builders())
@settings(max_examples=20, deadline=None)
def test_others_keep_their_places_when_a_device_leaves(builder: RingBuilder) -> None:
    """The number of a replica says which fragment a device keeps."""
    builder.rebalance(HOUR)
    before = builder.ring
    gone = max(before.primaries(0), key=lambda device: device.weight)
    if sum(1 for device in builder.devices if device is not None and device.weight) > builder.replicas:
        builder.set_weight(gone.id, 0)
    builder.rebalance(2 * HOUR)
    for partition in range(before.partition_count):
        for device in builder.ring.primaries(partition):
            if (place := before.place_of(partition, device.id)) is not None:
                assert builder.ring.place_of(partition, device.id) == place


@given(builders())
@settings(max_examples=20, deadline=None)
def test_a_holders_place_is_the_number_of_its_replica(builder: RingBuilder) -> None:
    builder.rebalance(HOUR)
    ring = builder.ring
    for partition in range(ring.partition_count):
        holders = ring.primaries(partition)
        assert [ring.place_of(partition, device.id) for device in holders] == list(range(len(holders)))
        strangers = [one for one in ring.devices if one is not None and one not in holders]
        assert all(ring.place_of(partition, one.id) is None for one in strangers)


def test_a_coding_says_which_rings_it_can_have() -> None:
    coding = Coding(4, 2, 65536)
    coding.check_ring(27, 6.0)
    with pytest.raises(RingError, match=r"replicas 6.5 of the ring do not fit the coding 4\+2: set replicas to 6"):
        coding.check_ring(10, 6.5)
    with pytest.raises(RingError, match=r"part_power 28 .* 27 at most"):
        coding.check_ring(28, 6.0)


def test_unknown_partitions_and_devices_are_refused() -> None:
    ring = built(part_power=4)
    for partition in (-1, 16):
        with pytest.raises(IndexError, match=r"outside 0\.\.15"):
            ring.primaries(partition)
    for device in (-1, 99):
        with pytest.raises(KeyError, match="there is no device"):
            ring.device(device)
        with pytest.raises(KeyError, match="there is no device"):
            ring.partitions_of(device)


def test_clockwise_goes_round_all_holders() -> None:
    ring = built()
    for partition in range(0, ring.partition_count, 37):
        holders = ring.replica_ring(partition)
        assert set(holders) == set(ring.primaries(partition))
        seen = [holders[0]]
        for _ in range(len(holders)):
            seen.append(ring.clockwise(partition, seen[-1].id))
        assert seen == [*holders, holders[0]]
        stranger = next(ring.handoffs(partition))
        with pytest.raises(KeyError, match=f"device {stranger.id} holds no replica of partition {partition}"):
            ring.clockwise(partition, stranger.id)


def test_partitions_of_finds_exactly_what_the_device_holds() -> None:
    builder = grid(3, 1, 2, part_power=6, replicas=2.5)
    builder.rebalance(HOUR)
    ring = builder.ring
    total = 0
    for device in ring.devices:
        assert device is not None
        for partition, replica in ring.partitions_of(device.id):
            assert ring.primaries(partition)[replica] is device
            total += 1
    assert total == int(64 * 2.5) == sum(held(ring).values())


@given(builders())
@settings(max_examples=40, deadline=None)
def test_handoffs_are_every_other_device_once_the_farthest_first(builder: RingBuilder) -> None:
    builder.rebalance(HOUR)
    ring = builder.ring
    devices = {device for device in ring.devices if device is not None}
    for partition in range(0, ring.partition_count, 5):
        primaries = ring.primaries(partition)
        handoffs = list(ring.handoffs(partition))
        assert len(handoffs) == len(set(handoffs))
        assert set(handoffs) == devices - set(primaries)
        assert handoffs == list(ring.handoffs(partition))
        # Walking along, a device in a used zone comes only when no device in an unused zone is left.
        used = {(device.region, device.zone) for device in primaries}
        zones = {(device.region, device.zone) for device in devices}
        for device in handoffs:
            place = (device.region, device.zone)
            if used != zones:
                assert place not in used
            used.add(place)


def test_handoffs_differ_between_partitions() -> None:
    ring = built(part_power=10)
    first = {next(ring.handoffs(partition)).id for partition in range(ring.partition_count)}
    assert first == set(range(16))


def test_drained_devices_are_the_last_handoffs() -> None:
    builder = grid(4, 1, 2, part_power=6)
    builder.set_weight(0, 0)
    builder.rebalance(HOUR)
    assert held(builder.ring)[0] == 0
    for partition in range(64):
        assert list(builder.ring.handoffs(partition))[-1].id == 0


def test_a_ring_checks_its_tables() -> None:
    ring = built(part_power=4)
    with pytest.raises(RingError, match="size"):
        Ring(1, 5, 3, ring.devices, ring.rows)
    with pytest.raises(RingError, match="not among the devices"):
        Ring(1, 4, 3, ring.devices[:3], ring.rows)
    with pytest.raises(RingError, match="is at position 0"):
        Ring(1, 4, 3, ring.devices[1:], ring.rows)


def test_a_loaded_ring_is_small() -> None:
    data = codec.encode(built(part_power=16))
    tracemalloc.start()
    ring = codec.decode(data)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ring.partition_count == 1 << 16
    # Two bytes per slot and little else, which keeps 2^18 partitions well under 16 MiB.
    assert size < 3 * (2 << 16) + 200_000
