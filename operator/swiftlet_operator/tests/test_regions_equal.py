"""Regions that are behind each other: `RegionsEqual` is True by proof alone, and names who is behind since when."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from swiftlet_operator.lag import Lag, OtherRegion, Told, lags, parsed
from swiftlet_operator.plugin import render
from swiftlet_operator.plugin.picture import Picture
from swiftlet_operator.reports import RingReport, parse_report, report_of, told_of_regions
from swiftlet_operator.tests.reporters import IN_SYNC
from swiftlet_operator.tests.worlds import START, Scene, settled

TYPE = "RegionsEqual"
RING = "object-0"
PLACES = {"store-disks-0": "east", "store-disks-1": "west", "store-disks-2": "west"}


def says(region: str, other: str, equal_at_s: float | None, objects: int = 0, size_bytes: int = 0) -> RingReport:
    """Return what a replicator says of a device in a region."""
    return replace(IN_SYNC, region=region, regions={other: OtherRegion(equal_at_s, objects, size_bytes)})


async def told(times: dict[str, float | None]) -> Scene:
    """Return a cluster in two regions whose replicators report these times, by pod."""
    scene = await settled()
    assert scene.condition(TYPE) == ("False", "NotWanted")
    for pod, region in PLACES.items():
        for disk in ("d0", "d1"):
            other = "west" if region == "east" else "east"
            scene.told.said[f"{pod}/{disk}", RING] = says(region, other, times[pod])
    await scene.step()
    return scene


async def test_regions_are_equal_when_one_side_has_compared_everything_lately() -> None:
    recent, old = START + 900.0, START - 5000.0
    for times in ((recent, recent, recent), (old, recent, recent), (recent, old, recent)):
        scene = await told(dict(zip(PLACES, times, strict=True)))
        assert scene.condition(TYPE) == ("True", "Equal")
        assert scene.message(TYPE) == "what was written is in all regions but for the last 5 minutes"
        assert await scene.step() == []


async def test_a_region_that_is_behind_is_named_with_its_lag() -> None:
    scene = await told(dict.fromkeys(PLACES, START - 9000.0))
    assert scene.condition(TYPE) == ("False", "RegionsBehind")
    assert scene.message(TYPE).startswith("east and west: what was written in the last 2 hours may be in one")
    scene.told.silent.add("store-disks-1")
    await scene.step()
    assert scene.condition(TYPE) == ("False", "RegionsBehind")


async def test_what_a_region_that_is_behind_is_known_to_lack_is_told_in_records_and_bytes() -> None:
    scene = await told(dict.fromkeys(PLACES, START - 9000.0))
    assert "lacking" not in scene.message(TYPE)
    scene.told.said["store-disks-0/d0", RING] = says("east", "west", START - 9000.0, 12, 3_400_000)
    await scene.step()
    assert "(ring object-0; 12 records are known to be lacking, about 3.4 MB of data)" in scene.message(TYPE)


async def test_what_is_not_reported_is_not_known() -> None:
    scene = await told({"store-disks-0": None, "store-disks-1": None, "store-disks-2": START + 900.0})
    assert scene.condition(TYPE) == ("Unknown", "NotCompared")
    assert "east and west" in scene.message(TYPE)
    scene = await told(dict.fromkeys(PLACES, START + 900.0))
    scene.told.silent.add("store-disks-2")
    await scene.step()
    assert scene.condition(TYPE) == ("Unknown", "NotReported")
    assert "store-disks-2" in scene.message(TYPE)


def test_the_lag_of_a_pair_is_that_of_its_worst_ring_by_the_better_side() -> None:
    found = lags(
        [
            Told("object-0", "east", {"west": OtherRegion(START - 10, 3), "north": OtherRegion(START)}),
            Told("object-0", "east", {"west": OtherRegion(START - 90, 4, 500)}),
            Told("object-0", "west", {"east": OtherRegion(START - 40, 2, 300)}),
            Told("account", "west", {"east": OtherRegion(START - 20)}),
            Told("object-0", "north", {"west": OtherRegion(None)}),
        ]
    )
    assert found == [
        Lag(("east", "north"), "object-0", START, 0),
        Lag(("east", "west"), "object-0", START - 40, 7, 800),
        Lag(("north", "west"), "object-0", None, 0),
    ]


def report(
    region: str, other: str, equal_at_s: float | None, objects: int, size_bytes: int | None = None
) -> dict[str, Any]:
    """Return a status report of a replicator, as it is received; one of an earlier release has no bytes."""
    about = {"equalAt": equal_at_s, "partitions": 1, "objects": objects}
    ring = {"region": region, "regions": {other: about if size_bytes is None else {**about, "bytes": size_bytes}}}
    return {"service": "replicator", "devices": {f"{region}/d0": {"rings": {RING: ring}}}}


def test_the_plugin_shows_the_lag_of_each_pair() -> None:
    reports = {
        ("store-disks-0", "replicator"): report("east", "west", START - 700, 12, 3 << 20),
        ("store-disks-1", "replicator"): report("west", "east", START - 800, 0, 1 << 19),
        ("store-disks-2", "replicator"): report("north", "west", START - 14, 0),
        ("store-disks-2", "object"): {"devices": {"d0": {}}},
    }
    cluster = {"metadata": {"name": "store", "namespace": "data"}, "spec": {}}
    lines = [line.split("  ") for line in render.status(Picture(cluster, reports=reports, now_s=START))]
    cells = [[cell.strip() for cell in line if cell] for line in lines]
    assert ["REGIONS", "LAG", "RING", "KNOWN TO LACK"] in cells
    assert ["east, west", "10 minutes", RING, "12 records, about 3.5 MiB"] in cells
    assert ["north, west", "14 s", RING, "-"] in cells


@pytest.mark.parametrize(
    "fields", [None, 7, [], {"west": None}, {"w" * 65: {"equalAt": 1}}, {"west": []}, {"west": 1.5}]
)
def test_what_is_no_report_about_regions_is_left_out(fields: object) -> None:
    assert parsed(fields) == {}


def test_damaged_values_are_unknown() -> None:
    assert parsed({"west": {"equalAt": "soon", "objects": -1, "bytes": "much"}}) == {"west": OtherRegion(None, 0)}
    assert parsed({"west": {"equalAt": float("nan"), "objects": True}}) == {"west": OtherRegion(None, 0)}
    assert len(parsed({str(number): {} for number in range(100)})) == 64
    other = {"west": {"equalAt": START}}
    damaged = {"devices": {"one": {"rings": {"object-0": {"region": 5, "regions": other}}}, "two": 3}}
    assert lags(told_of_regions(report_of("replicator", damaged))) == []
    body = json.dumps(report("east", "west", START, 3)).encode()
    found = parse_report("replicator", body)
    assert found is not None
    ring = found.devices["east/d0"].rings[RING]
    assert (ring.region, ring.regions) == ("east", {"west": OtherRegion(START, 3)})
