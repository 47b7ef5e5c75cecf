"""The rings of a process: loading, reloading, and keeping the last good one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from swiftlet.errors import Unavailable
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet, watching
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring.codec import chunks, load, save
from swiftlet.settings import ContainerSettings, ObjectSettings, load_settings
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


class ProjectedVolume:
    """A directory of symbolic links as the kubelet makes it: all go through `..data`, which is swapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._serial = 0

    def show(self, files: dict[str, bytes]) -> None:
        self._serial += 1
        payload = self.path / f"..payload_{self._serial}"
        payload.mkdir(parents=True)
        for name, content in files.items():
            (payload / name).write_bytes(content)
        old = self.path / "..data"
        replaced = old.resolve() if old.exists() else None
        (self.path / "..data_tmp").symlink_to(payload.name)
        (self.path / "..data_tmp").rename(old)
        for name in files:
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        for link in self.path.iterdir():
            if not link.name.startswith("..") and link.name not in files:
                link.unlink()
        if replaced is not None:
            for file in replaced.iterdir():
                file.unlink()
            replaced.rmdir()


CHUNK_LIMIT = 80_000
"""Small enough for several chunks of a small ring."""


def chunk_files(name: str, ring: Ring) -> dict[str, bytes]:
    files = {f"{name}.ring.{index}": chunk for index, chunk in enumerate(chunks(ring, CHUNK_LIMIT))}
    assert len(files) > 1
    return files


def stale(name: str) -> float | None:
    return REGISTRY.get_sample_value("swiftlet_ring_stale", {"ring": name})


def test_chunks_of_a_projected_volume_are_joined_and_followed(tmp_path: Path) -> None:
    volume = ProjectedVolume(tmp_path / "rings")
    rings = RingSet(volume.path, ["container", object_ring(1), object_ring(11)])
    first, other = make_ring(), make_ring(5)
    files = chunk_files("object-1", other) | chunk_files("object-11", other)
    volume.show(chunk_files("container", first) | files)
    assert rings.refresh() == ["container", "object-1", "object-11"]
    assert rings.container() == first
    assert rings.objects(1) == other
    assert stale("container") == 0
    volume.show(chunk_files("container", first) | files)
    assert rings.refresh() == []
    second = make_ring(versions=2)
    volume.show(chunk_files("container", second) | files)
    assert rings.refresh() == ["container"]
    assert rings.container() == second


def test_half_updated_partial_and_ambiguous_sets_are_refused(tmp_path: Path) -> None:
    volume = ProjectedVolume(tmp_path / "rings")
    rings = RingSet(volume.path, ["container"])
    old, new = chunk_files("container", make_ring()), chunk_files("container", make_ring(versions=2))
    volume.show(old)
    rings.refresh()
    good = rings.container()
    last = sorted(new)[-1]
    for refused in (
        old | {last: new[last]},
        {name: chunk for name, chunk in new.items() if name != last},
        new | {"container.ring": b"whole"},
        {},
    ):
        volume.show(refused)
        assert rings.refresh() == []
        assert rings.container() is good
        assert stale("container") == 1
    volume.show(new)
    assert rings.refresh() == ["container"]
    assert stale("container") == 0


def test_files_that_come_back_unchanged_are_in_use_again(tmp_path: Path) -> None:
    path = tmp_path / "container.ring"
    save(make_ring(), path)
    rings = RingSet(tmp_path, ["container"])
    rings.refresh()
    path.rename(tmp_path / "elsewhere")
    rings.refresh()
    assert stale("container") == 1
    (tmp_path / "elsewhere").rename(path)
    assert rings.refresh() == []
    assert stale("container") == 0


def test_the_last_good_ring_outlives_the_process(tmp_path: Path) -> None:
    volume, cache = ProjectedVolume(tmp_path / "rings"), tmp_path / "device" / "rings"
    old, new = chunk_files("container", make_ring()), chunk_files("container", make_ring(versions=2))
    volume.show(old)
    RingSet(volume.path, ["container"], cache).refresh()
    volume.show(old | {"container.ring.0": new["container.ring.0"]})

    restarted = RingSet(volume.path, ["container"], cache)
    assert restarted.refresh() == ["container"]
    assert restarted.container().version == 1
    assert restarted.missing() is None
    assert stale("container") == 1
    assert restarted.refresh() == []
    volume.show(new)
    assert restarted.refresh() == ["container"]
    assert load(cache / "container.ring").version == 2


@pytest.mark.parametrize("damage", ["garbage", "empty", "directory"])
def test_a_damaged_cache_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    cached = tmp_path / "cache" / "container.ring"
    cached.parent.mkdir()
    if damage == "directory":
        cached.mkdir()
    else:
        cached.write_bytes(b"no ring" if damage == "garbage" else b"")
    rings = RingSet(tmp_path / "rings", ["container"], tmp_path / "cache")
    assert rings.refresh() == []
    with pytest.raises(Unavailable):
        rings.container()
    (tmp_path / "rings").mkdir()
    save(make_ring(), tmp_path / "rings" / "container.ring")
    assert rings.refresh() == ["container"]


def test_services_of_one_pod_keep_their_rings_apart(tmp_path: Path) -> None:
    save(make_ring(), tmp_path / "container.ring")
    environ = {
        "SWIFTLET_CLUSTER__HASH_PATH_SUFFIX": "end",
        "SWIFTLET_CLUSTER__KEY": "k" * 32,
        "SWIFTLET_CLUSTER__RINGS": str(tmp_path),
        "SWIFTLET_CLUSTER__RING_CACHE": str(tmp_path / "cache"),
        "SWIFTLET_OBJECT__DEVICES": "[d0]",
        "SWIFTLET_CONTAINER__DEVICES": "[db]",
    }
    RingSet.of(load_settings(ObjectSettings, None, environ), account=False, objects=False)
    RingSet.of(load_settings(ContainerSettings, None, environ), account=False, objects=False)
    kept = sorted(path.relative_to(tmp_path / "cache") for path in (tmp_path / "cache").glob("*/*"))
    assert kept == [Path("container/container.ring"), Path("object/container.ring")]
