"""Telling object servers what is through: in batches, within bounds, and never at the price of anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from prometheus_client import REGISTRY

from swiftlet.errors import NodeUnreachable
from swiftlet.model import ObjectKey
from swiftlet.peers import MAX_SETTLED
from swiftlet.placement.settling import Settling, Version
from swiftlet.placement.tests.cluster import at
from swiftlet.placement.tests.test_plan_health import DEVICES
from swiftlet.ring.model import Device

LONG_S = 3600.0


def key(number: int) -> ObjectKey:
    return ObjectKey(0, 0, number.to_bytes(16, "big"))


def counted(outcome: str) -> float:
    return REGISTRY.get_sample_value("swiftlet_settled_rows_total", {"outcome": outcome}) or 0.0


class Servers:
    """Object servers that listen, hang or are gone."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[Version]]] = []
        self.gone: set[int] = set()
        self.hanging: set[int] = set()

    async def settle(self, device: Device, written: Sequence[Version]) -> None:
        await asyncio.sleep(0)
        if device.id in self.gone:
            raise NodeUnreachable("gone")
        if device.id in self.hanging:
            await asyncio.Event().wait()
        self.told.append((device.id, list(written)))

    def batches(self, device: Device) -> list[int]:
        return [len(versions) for id, versions in self.told if id == device.id]


async def until_told(settling: Settling, left: int = 0) -> None:
    async with asyncio.timeout(10):
        while settling.waiting > left:  # noqa: ASYNC110 - a number that falls sets no event
            await asyncio.sleep(0.001)


async def test_versions_gather_per_device() -> None:
    servers = Servers()
    settling = Settling(servers, interval_s=0.01)
    for number in range(5):
        settling.add(DEVICES[number % 2], key(number), at(1))
    await until_told(settling)
    assert sorted(servers.told) == [
        (DEVICES[0].id, [(key(n), at(1)) for n in (0, 2, 4)]),
        (DEVICES[1].id, [(key(n), at(1)) for n in (1, 3)]),
    ]
    settling.add(DEVICES[0], key(9), at(2))
    await until_told(settling)
    assert servers.batches(DEVICES[0]) == [3, 1]


async def test_a_full_batch_goes_at_once_and_none_is_larger() -> None:
    servers = Servers()
    settling = Settling(servers, interval_s=LONG_S)
    for number in range(2 * MAX_SETTLED + 7):
        settling.add(DEVICES[0], key(number), at(1))
    await until_told(settling, 7)
    assert servers.batches(DEVICES[0]) == [MAX_SETTLED, MAX_SETTLED]
    await settling.drain(10)
    assert servers.batches(DEVICES[0]) == [MAX_SETTLED, MAX_SETTLED, 7]


async def test_a_device_that_is_gone_loses_only_what_was_for_it() -> None:
    servers, before = Servers(), (counted("lost"), counted("settled"))
    servers.gone.add(DEVICES[0].id)
    settling = Settling(servers, interval_s=0.0)
    settling.add(DEVICES[0], key(1), at(1))
    settling.add(DEVICES[1], key(1), at(1))
    await until_told(settling)
    assert servers.batches(DEVICES[1]) == [1]
    assert (counted("lost"), counted("settled")) == (before[0] + 1, before[1] + 1)


async def test_beyond_the_limit_versions_are_dropped() -> None:
    servers, before = Servers(), counted("dropped")
    servers.hanging.add(DEVICES[0].id)
    settling = Settling(servers, interval_s=0.0, max_waiting=2)
    for number in range(5):
        settling.add(DEVICES[0], key(number), at(1))
    assert settling.waiting == 2
    assert counted("dropped") == before + 3
    await settling.drain(0.01)
    assert settling.waiting == 0


async def test_of_several_at_once_those_there_is_room_for_are_told() -> None:
    servers, before = Servers(), counted("dropped")
    settling = Settling(servers, interval_s=0.0, max_waiting=3)
    settling.add_all(DEVICES[0], [])
    assert settling.waiting == 0
    settling.add_all(DEVICES[0], [(key(number), at(1)) for number in range(2)])
    settling.add_all(DEVICES[1], [(key(number), at(1)) for number in range(4)])
    settling.add_all(DEVICES[0], [(key(9), at(1))])
    assert settling.waiting == 3
    assert counted("dropped") == before + 4
    await until_told(settling)
    assert sorted(servers.told) == [
        (DEVICES[0].id, [(key(0), at(1)), (key(1), at(1))]),
        (DEVICES[1].id, [(key(0), at(1))]),
    ]


async def test_at_the_end_what_waits_is_told_at_once_and_who_hangs_is_not_waited_for() -> None:
    servers, lost, dropped = Servers(), counted("lost"), counted("dropped")
    servers.hanging.add(DEVICES[0].id)
    settling = Settling(servers, interval_s=LONG_S)
    for number in range(MAX_SETTLED + 5):
        settling.add(DEVICES[0], key(number), at(1))
    settling.add(DEVICES[1], key(1), at(1))
    await settling.drain(0.05)
    assert servers.batches(DEVICES[1]) == [1]
    assert servers.batches(DEVICES[0]) == []
    assert settling.waiting == 0
    assert (counted("lost"), counted("dropped")) == (lost + MAX_SETTLED, dropped + 5)
