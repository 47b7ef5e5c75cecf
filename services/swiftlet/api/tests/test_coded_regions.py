"""Repairs of objects with erasure coding between two regions: near fragments are read first, and what passes the link
between the regions counts for its budget.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path as Directory

import pytest
from prometheus_client import REGISTRY

from swiftlet.api.tests.coded import CODING, FAR_REGION, STRIPE, CodedServers, coded_proxy
from swiftlet.api.tests.coded_repairs import Repairs
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_coded_repair import places_of
from swiftlet.api.tests.test_erasure_coding import body_of
from swiftlet.sync.moving.pacing import LinkBudget, Pace

STRIPES = 70
FRAGMENT = STRIPES * CODING.cell_bytes
BYTES_PER_S = 1000.0


@dataclass
class Link:
    """What has passed the link by its budget, on a clock that stands still, and by the metric."""

    slept: list[float] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def clear(self) -> None:
        """Count from now on."""
        self.slept.clear()
        self.before = {direction: _passed(direction) for direction in ("pulled", "pushed")}

    def paid(self) -> float:
        """The bytes that a device has waited for, which has done nothing before."""
        return max(self.slept, default=0.0) * BYTES_PER_S

    def passed(self) -> dict[str, float]:
        """The bytes by direction."""
        return {direction: _passed(direction) - before for direction, before in self.before.items()}


def _passed(direction: str) -> float:
    labels = {"region": FAR_REGION, "direction": direction}
    return REGISTRY.get_sample_value("swiftlet_replicator_region_bytes_total", labels) or 0.0


Regions = tuple[Proxy, CodedServers, Link]


@asynccontextmanager
async def regions(root: Directory, far: Collection[int], pack_below: int = 0) -> AsyncIterator[Regions]:
    """Those of a store whose object `c/o` is everywhere."""
    async with coded_proxy(root, far=far, pack_below=pack_below) as (proxy, servers):
        await put(proxy, "c/o", STRIPES * STRIPE)
        everyone = Repairs(servers, lambda: proxy.clock.now)
        while not (await everyone.round_of()).clean:
            pass
        yield proxy, servers, Link()


async def put(proxy: Proxy, name: str, size: int) -> None:
    """Store an object; again when connections were lost because nobody got to speak for seconds."""
    while (stored := await proxy.call("PUT", name, data=body_of(size))).status != 201:
        assert stored.status == 503, stored.body


def paced(proxy: Proxy, servers: CodedServers, link: Link) -> Repairs:
    """Rounds that have a budget."""
    link.clear()
    pace = Pace(clock=lambda: 0.0, sleep=link.sleep, links=LinkBudget(BYTES_PER_S))
    return Repairs(servers, lambda: proxy.clock.now, pace=pace)


@pytest.mark.parametrize(("far", "needed"), [((5,), 0), ((4, 5), 1), ((3, 4, 5), 2)])
async def test_a_rebuild_reads_as_few_far_fragments_as_can_be_and_these_count_for_the_link(
    tmp_path: Directory, far: Collection[int], needed: int
) -> None:
    async with regions(tmp_path, far) as (proxy, servers, link):
        await servers.replace(1)
        report = await paced(proxy, servers, link).round_of(1)
        assert (report.rebuilt, report.rebuilt_bytes, report.failed) == (1, FRAGMENT, 0)
        assert link.passed() == {"pulled": needed * FRAGMENT, "pushed": 0}
        assert link.paid() == needed * FRAGMENT


async def test_a_fragment_that_is_made_for_a_place_in_another_region_passes_the_link_once(tmp_path: Directory) -> None:
    async with regions(tmp_path, [5]) as (proxy, servers, link):
        at = places_of(servers, "o").at
        place = next(number for number, device in enumerate(at) if device.id == 5)
        await servers.replace(5)
        report = await paced(proxy, servers, link).round_of(at[place - 1].id)
        assert (report.rebuilt, report.failed) == (1, 0)
        assert link.passed() == {"pulled": 0, "pushed": FRAGMENT}
        assert link.paid() == FRAGMENT


async def test_a_copy_of_a_small_object_that_passes_the_link_counts_for_it(tmp_path: Directory) -> None:
    size = 500
    async with regions(tmp_path, [2, 3, 4, 5], pack_below=1000) as (proxy, servers, link):
        holders = places_of(servers, "small").at[: CODING.holders]
        pairs = zip(holders, [*holders[1:], holders[0]], strict=True)
        first, second = next((one, n) for one, n in pairs if one.region != FAR_REGION and n.region == FAR_REGION)
        with servers.away(second.id):
            await put(proxy, "c/small", size)
        report = await paced(proxy, servers, link).round_of(first.id)
        assert (report.copied, report.failed) == (1, 0)
        assert link.passed() == {"pulled": 0, "pushed": size}
        assert link.paid() == size
