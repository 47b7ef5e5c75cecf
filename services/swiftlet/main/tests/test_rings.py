"""The rings of a process: loading, reloading, and keeping the last good one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from swiftlet.errors import Unavailable
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet, watching
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring.codec import save
from swiftlet.web.tests.conftest import eventually


def make_ring(part_power: int = 4, versions: int = 1) -> Ring:
    builder = RingBuilder(part_power, 2, min_part_hours=0)
    for number in range(3):
        builder.add_device(host="h", port=1, device=f"d{number}", region="r", zone=f"z{number}", weight=1)
    for _ in range(versions):
        builder.rebalance(500_000)
    return builder.ring


def test_rings_are_loaded_and_reloaded_when_their_files_change(tmp_path: Path) -> None:
    rings = RingSet(tmp_path, ["container", object_ring(3)])
    save(make_ring(), tmp_path / "container.ring")
    save(make_ring(5), tmp_path / "object-3.ring")
    assert rings.refresh() == ["container", "object-3"]
    assert rings.container().part_power == 4
    assert rings.objects(3).part_power == 5
    assert rings.missing() is None
    assert rings.refresh() == []
    save(make_ring(versions=2), tmp_path / "container.ring")
    assert rings.refresh() == ["container"]
    assert rings.container().version == 2


def test_absent_and_unknown_rings_are_unavailable(tmp_path: Path) -> None:
    rings = RingSet(tmp_path, ["account"])
    rings.refresh()
    with pytest.raises(Unavailable, match=r"account is not loaded: .*No such file"):
        rings.account()
    with pytest.raises(Unavailable, match="no ring object-7"):
        rings.objects(7)
    assert "account" in str(rings.missing())


@pytest.mark.parametrize("damage", ["garbage", "gone", "part_power"])
def test_the_last_good_ring_stays(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "container.ring"
    save(make_ring(), path)
    rings = RingSet(tmp_path, ["container"])
    rings.refresh()
    good = rings.container()
    if damage == "garbage":
        path.write_bytes(b"no ring")
    elif damage == "gone":
        path.unlink()
    else:
        save(make_ring(6, versions=2), path)
    assert rings.refresh() == []
    assert rings.container() is good
    assert rings.missing() is None
    save(make_ring(versions=3), path)
    assert rings.refresh() == ["container"]


async def test_watching_picks_up_new_files(tmp_path: Path) -> None:
    rings = RingSet(tmp_path, ["container"])
    async with watching(rings, 0.01):
        save(make_ring(), tmp_path / "container.ring")
        await asyncio.to_thread(eventually, lambda: rings.missing() is None)
