"""What rounds of repairs know of redundancy: the least redundant objects come first, a round has its bounds, and nobody
says that all is whole before it is proved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.api.tests.coded import CODED, CODING, CodedServers, coded_proxy
from swiftlet.api.tests.coded_repairs import Repairs
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_coded_repair import Repaired, assert_read, places_of, put
from swiftlet.boundaries.coded import PLACES
from swiftlet.placement.tests.cluster import HOUR
from swiftlet.sync.coded.backlog import Bounds
from swiftlet.sync.coded.layout import CodedRing, HoldersAround

BODIES = range(2000, 2012)
"""Sizes of objects."""


@pytest.fixture
async def repaired(tmp_path: Directory) -> AsyncIterator[Repaired]:
    async with coded_proxy(tmp_path) as (proxy, servers):
        yield proxy, servers, Repairs(servers, lambda: proxy.clock.now)


def standing(repairs: Repairs, device: int) -> dict[str, Any]:
    """Return what the status report has of a device."""
    name = repairs.servers.ring.device(device).name
    found: Any = repairs.standings.report(lambda policy: f"object-{policy}")
    fields: dict[str, Any] = found[name]["rings"][f"object-{CODED}"]
    return fields


def redundancy(repairs: Repairs, of: str) -> dict[str, int]:
    """Return how many partitions or objects have how many fragments, without those that are none."""
    status: Any = repairs.status()
    return {name: count for name, count in status["redundancy"][str(CODED)][of].items() if count}


def partitions_of(servers: CodedServers, sizes: range) -> int:
    """Return how many partitions of the ring the objects are in."""
    return len({places_of(servers, f"o{size}").key.partition for size in sizes})


async def test_the_least_redundant_objects_are_repaired_first(repaired: Repaired) -> None:
    proxy, servers, _ = repaired
    repairs = Repairs(servers, lambda: proxy.clock.now, bounds=Bounds(len(BODIES[:3]) * 2, 1 << 30))
    with servers.away(2):
        await put(proxy, BODIES[3:])
    proxy.clock.now += 1
    await put(proxy, BODIES[:3])
    await servers.replace(4)
    # Now those of the first three have five fragments, and the others four.
    report = await repairs.round_of()
    assert report.is_bounded
    assert redundancy(repairs, "objects") == {"5": 3, "4": 9}
    # At most so many as are made at a time are made after the bound is reached, and all of them of the others.
    assert set(range(6)) >= {report.rebuilt - 6, report.failed}
    after = await repairs.round_of()
    fragments = redundancy(repairs, "objects")
    assert fragments["5"] >= 3
    assert after.left < report.left
    while not report.clean:
        report = await repairs.round_of()
    assert redundancy(repairs, "objects") == {}


async def test_a_round_is_bounded_and_the_next_one_goes_on(repaired: Repaired) -> None:
    proxy, servers, _ = repaired
    repairs = Repairs(servers, lambda: proxy.clock.now, bounds=Bounds(4, 1 << 30))
    await put(proxy, BODIES)
    await servers.replace(1)
    rebuilt, rounds = 0, 0
    while rebuilt < len(BODIES):
        report = await repairs.round_of(1)
        assert report.rebuilt == 4
        assert report.goes_on
        rebuilt, rounds = rebuilt + report.rebuilt, rounds + 1
        status: Any = repairs.status()
        assert (report.left, status["left"]) == (len(BODIES) - rebuilt,) * 2
        assert (status["wholeAt"] is None) == (report.left == 0)
        assert standing(repairs, 1)["behind"] == report.left + report.rebuilt
    assert rounds == 3
    report = await repairs.round_of(1)
    assert (report.clean, report.goes_on, report.is_bounded) == (True, False, False)
    await assert_read(proxy, servers, needed=1, sizes=BODIES[:2])


async def test_bytes_bound_a_round_too(repaired: Repaired) -> None:
    proxy, servers, _ = repaired
    repairs = Repairs(servers, lambda: proxy.clock.now, bounds=Bounds(1 << 20, 1))
    await put(proxy, range(300_000, 300_010))
    await servers.replace(1)
    report = await repairs.round_of(1)
    # Those that are being made are finished.
    assert 1 <= report.rebuilt <= 4
    assert report.left == 10 - report.rebuilt


async def test_a_device_is_in_sync_only_once_all_places_are_proved_equal(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    await put(proxy, BODIES)
    proxy.clock.now += 100
    # A PUT does not wait for the slowest places, which may lack a fragment then.
    while not (await repairs.round_of()).clean:
        pass
    proxy.clock.now += 100
    await repairs.round_of()
    assert standing(repairs, 0)["syncedAt"] == proxy.clock.now + 30
    proved_s = standing(repairs, 0)["syncedAt"]
    assert redundancy(repairs, "partitions") == {"6": partitions_of(servers, BODIES)}
    await servers.replace(3)
    proxy.clock.now += 100
    await repairs.round_of(0, 1, 2, 3)
    for device in range(4):
        found = standing(repairs, device)
        assert found["syncedAt"] == proved_s or device == 3, device
        assert (found["behind"] > 0) == (device == 3)
    assert standing(repairs, 3)["syncedAt"] == proved_s
    proxy.clock.now += 100
    await repairs.round_of()
    assert {standing(repairs, device)["syncedAt"] for device in range(6)} == {proxy.clock.now + 30}
    assert {standing(repairs, device)["held"] for device in range(6)} == {partitions_of(servers, BODIES)}


async def test_places_that_can_not_be_asked_count_as_lost_and_prove_nothing(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    await put(proxy, BODIES)
    count = partitions_of(servers, BODIES)
    for away, stands in (((5,), "5"), ((4, 5), "4"), ((3, 4, 5), "short")):
        with servers.away(*away):
            await repairs.round_of(0, 1, 2)
        assert redundancy(repairs, "partitions") == {stands: count}
        around = HoldersAround(CodedRing(CODED, servers.ring, CODING), servers.ring.device(0))
        copies = sum(any(other.id in away for other in around.others_of(one)) for one in around.own)
        assert standing(repairs, 0)["unchecked"] == servers.ring.partition_count + copies
        assert standing(repairs, 0)["syncedAt"] is None
    await repairs.round_of()
    assert redundancy(repairs, "partitions") == {"6": count}
    assert standing(repairs, 0)["unchecked"] == 0


async def test_a_device_that_leaves_the_ring_is_empty_once_its_fragments_are_at_their_new_places(
    tmp_path: Directory,
) -> None:
    async with coded_proxy(tmp_path, devices=CODING.fragments + 2) as (proxy, servers):
        repairs = Repairs(servers, lambda: proxy.clock.now)
        await put(proxy, BODIES)
        proxy.clock.now += 1
        assert (await proxy.call("DELETE", f"c/o{BODIES[0]}")).status == 204
        leaving = places_of(servers, f"o{BODIES[0]}").at[0].id
        proxy.clock.now += 100
        await deliver(proxy, servers)
        await repairs.round_of()
        assert standing(repairs, leaving)["held"] > 0
        servers.builder.set_weight(leaving, 0)
        servers.builder.rebalance(2 * HOUR)
        servers.ring = servers.builder.ring
        rounds = 0
        while standing(repairs, leaving)["held"] or not standing(repairs, leaving)["syncedAt"]:
            rounds += 1
            assert rounds <= 4
            proxy.clock.now += 100
            await repairs.round_of()
        assert standing(repairs, leaving)["emptySince"] is not None
        # It remembers the deletion until all may forget it.
        assert servers.stores[leaving].partitions(CODED)
        await assert_read_without(proxy, servers, leaving)


async def deliver(proxy: Proxy, servers: CodedServers) -> None:
    """Have all devices deliver their rows."""
    while servers.pending():
        await servers.deliver_pending(proxy.cluster.rows)


async def assert_read_without(proxy: Proxy, servers: CodedServers, gone: int) -> None:
    """Assert that each place of each object shows it, and that none of them is on the device that is gone."""
    for size in BODIES[1:]:
        places = places_of(servers, f"o{size}")
        for place, device in enumerate(places.at):
            assert device.id != gone
            assert servers.stores[device.id].suffix_hashes(CODED, PLACES * places.key.partition + place)
