"""Telling object servers what is through: in batches, within bounds, and never at the price of anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from prometheus_client import REGISTRY

from swiftlet.boundaries.objects import MAX_ACKNOWLEDGED
from swiftlet.errors import NodeUnreachable
from swiftlet.model import ObjectKey
from swiftlet.placement.rows.acknowledgements import Acknowledgements, Version
from swiftlet.placement.tests.cluster import at
from swiftlet.placement.tests.test_plan_health import DEVICES
from swiftlet.ring.model import Device

LONG_S = 3600.0


def key(number: int) -> ObjectKey:
    return ObjectKey(0, 0, number.to_bytes(16, "big"))


def counted(outcome: str) -> float:
    return REGISTRY.get_sample_value("swiftlet_acknowledged_updates_total", {"outcome": outcome}) or 0.0


class Servers:
    """Object servers that listen, hang or are gone."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[Version]]] = []
        self.gone: set[int] = set()
        self.hanging: set[int] = set()

    async def acknowledge(self, device: Device, written: Sequence[Version]) -> None:
        await asyncio.sleep(0)
        if device.id in self.gone:
            raise NodeUnreachable("gone")
        if device.id in self.hanging:
            await asyncio.Event().wait()
        self.told.append((device.id, list(written)))

    def batches(self, device: Device) -> list[int]:
        return [len(versions) for id, versions in self.told if id == device.id]


async def until_told(acknowledgements: Acknowledgements, left: int = 0) -> None:
    async with asyncio.timeout(10):
        while acknowledgements.waiting > left:  # noqa: ASYNC110 - a number that falls sets no event
            await asyncio.sleep(0.001)


async def test_versions_gather_per_device() -> None:
    servers = Servers()
    acknowledgements = Acknowledgements(servers, interval_s=0.01)
    for number in range(5):
        acknowledgements.add(DEVICES[number % 2], key(number), at(1))
    await until_told(acknowledgements)
    assert sorted(servers.told) == [
        (DEVICES[0].id, [(key(n), at(1)) for n in (0, 2, 4)]),
        (DEVICES[1].id, [(key(n), at(1)) for n in (1, 3)]),
    ]
    acknowledgements.add(DEVICES[0], key(9), at(2))
    await until_told(acknowledgements)
    assert servers.batches(DEVICES[0]) == [3, 1]


async def test_a_full_batch_goes_at_once_and_none_is_larger() -> None:
    servers = Servers()
    acknowledgements = Acknowledgements(servers, interval_s=LONG_S)
    for number in range(2 * MAX_ACKNOWLEDGED + 7):
        acknowledgements.add(DEVICES[0], key(number), at(1))
    await until_told(acknowledgements, 7)
    assert servers.batches(DEVICES[0]) == [MAX_ACKNOWLEDGED, MAX_ACKNOWLEDGED]
    await acknowledgements.drain(10)
    assert servers.batches(DEVICES[0]) == [MAX_ACKNOWLEDGED, MAX_ACKNOWLEDGED, 7]


async def test_a_device_that_is_gone_loses_only_what_was_for_it() -> None:
    servers, before = Servers(), (counted("lost"), counted("acknowledged"))
    servers.gone.add(DEVICES[0].id)
    acknowledgements = Acknowledgements(servers, interval_s=0.0)
    acknowledgements.add(DEVICES[0], key(1), at(1))
    acknowledgements.add(DEVICES[1], key(1), at(1))
    await until_told(acknowledgements)
    assert servers.batches(DEVICES[1]) == [1]
    assert (counted("lost"), counted("acknowledged")) == (before[0] + 1, before[1] + 1)


async def test_beyond_the_limit_versions_are_dropped() -> None:
    servers, before = Servers(), counted("dropped")
    servers.hanging.add(DEVICES[0].id)
    acknowledgements = Acknowledgements(servers, interval_s=0.0, max_waiting=2)
    for number in range(5):
        acknowledgements.add(DEVICES[0], key(number), at(1))
    assert acknowledgements.waiting == 2
    assert counted("dropped") == before + 3
    await acknowledgements.drain(0.01)
    assert acknowledgements.waiting == 0


async def test_of_several_at_once_those_there_is_room_for_are_told() -> None:
    servers, before = Servers(), counted("dropped")
    acknowledgements = Acknowledgements(servers, interval_s=0.0, max_waiting=3)
    acknowledgements.add_all(DEVICES[0], [])
    assert acknowledgements.waiting == 0
    acknowledgements.add_all(DEVICES[0], [(key(number), at(1)) for number in range(2)])
    acknowledgements.add_all(DEVICES[1], [(key(number), at(1)) for number in range(4)])
    acknowledgements.add_all(DEVICES[0], [(key(9), at(1))])
    assert acknowledgements.waiting == 3
    assert counted("dropped") == before + 4
    await until_told(acknowledgements)
    assert sorted(servers.told) == [
        (DEVICES[0].id, [(key(0), at(1)), (key(1), at(1))]),
        (DEVICES[1].id, [(key(0), at(1))]),
    ]


async def test_at_the_end_what_waits_is_told_at_once_and_who_hangs_is_not_waited_for() -> None:
    servers, lost, dropped = Servers(), counted("lost"), counted("dropped")
    servers.hanging.add(DEVICES[0].id)
    acknowledgements = Acknowledgements(servers, interval_s=LONG_S)
    for number in range(MAX_ACKNOWLEDGED + 5):
        acknowledgements.add(DEVICES[0], key(number), at(1))
    acknowledgements.add(DEVICES[1], key(1), at(1))
    await acknowledgements.drain(0.05)
    assert servers.batches(DEVICES[1]) == [1]
    assert servers.batches(DEVICES[0]) == []
    assert acknowledgements.waiting == 0
    assert (counted("lost"), counted("dropped")) == (lost + MAX_ACKNOWLEDGED, dropped + 5)
