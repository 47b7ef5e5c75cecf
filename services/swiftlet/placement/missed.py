"""What devices have missed of writes that were acknowledged without them: remembered here, and told to the devices.

A write is done when a quorum has it. A primary that was slow, full, overloaded or unreachable then holds something
older, or nothing, and only the writer knows. So the writer's process asks such a device last for that partition, and
tells it: from then on the device itself sends readers of the partition elsewhere, until its replicator has proved that
it has everything (`swiftlet_native.Doubts`). A device that can be told again is no longer suppressed either.

Fault model: the process may end before the device was told, and others may reach the device before it is reached from
here. If a device missed more partitions than `MAX_PARTITIONS` before it could be told, the rest is forgotten: it was
away for long, and has been restarted or has stood still, which it knows by itself. A device that can't be told is tried
again until it can.
"""

from __future__ import annotations

import asyncio

import structlog

from swiftlet.boundaries.objects import MAX_PLACES, DoubtTransport, Verdict
from swiftlet.errors import SwiftletError
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.metrics import MISSED, MISSED_TOLD
from swiftlet.ring.model import Device

RETRY_S = 0.5
"""Seconds between attempts to tell devices that could not be told."""
TELL_WITHIN_S = 2.0
MAX_PARTITIONS = 1 << 16
"""The largest number of a device's partitions that a process remembers as missed until it has told the device."""

_log = structlog.get_logger("missed")


class Missed:
    """Partitions of which devices have missed writes, until they are told."""

    def __init__(self, transport: DoubtTransport, health: NodeHealth) -> None:
        """Prepare the record of one process; devices are told nothing before `run`."""
        self._transport = transport
        self._health = health
        self._places: dict[int, tuple[Device, set[tuple[int, int]]]] = {}
        self._news = asyncio.Event()

    def note(self, device: Device, policy: int, partition: int) -> None:
        """Note that a write of the partition was acknowledged, or may be, without this device."""
        MISSED.inc()
        _, places = self._places.setdefault(device.id, (device, set()))
        if len(places) < MAX_PARTITIONS:
            places.add((policy, partition))
        self._news.set()

    def behind(self, policy: int, partition: int) -> frozenset[int]:
        """Return the ids of devices that missed something of a partition and do not know it yet."""
        if not self._places:
            return frozenset()
        place = policy, partition
        return frozenset(id_ for id_, (_, places) in self._places.items() if place in places)

    def waits(self, device: Device) -> bool:
        """Return whether a device has missed something and does not know it yet."""
        return device.id in self._places

    async def run(self) -> None:
        """Tell devices what they missed, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await asyncio.gather(*(self._tell(id_) for id_ in list(self._places)))
            if self._places:
                await asyncio.sleep(RETRY_S)
                self._news.set()

    async def _tell(self, id_: int) -> None:
        device, places = self._places[id_]
        while places:
            some = sorted(places)[:MAX_PLACES]
            try:
                async with asyncio.timeout(TELL_WITHIN_S):
                    await self._transport.judge(device, Verdict(doubted=some))
            except (SwiftletError, TimeoutError) as error:
                _log.debug(
                    "a device could not be informed of writes that it missed", device=device.name, error=str(error)
                )
                return
            places.difference_update(some)
            MISSED_TOLD.inc(len(some))
            self._health.succeeded(device)
        self._places.pop(id_, None)
