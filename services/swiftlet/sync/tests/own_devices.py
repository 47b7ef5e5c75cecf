"""Shares of devices in small rings."""

from __future__ import annotations

from swiftlet.ring import RingBuilder
from swiftlet.sync.planning.device_partitions import DevicePartitions, Places
from swiftlet.sync.planning.standing import Standing


def own_device(part_power: int, devices: int) -> DevicePartitions:
    """Of device 0, in a ring of three replicas."""
    builder = RingBuilder(part_power, 3, min_part_hours=0)
    for number in range(devices):
        builder.add_device(host=f"h{number}", port=1, device="d", region="r", zone=f"z{number}", weight=1)
    builder.rebalance(500_000)
    ring = builder.ring
    device = ring.device(0)
    return DevicePartitions(device, 0, Places(ring, device), Standing())
