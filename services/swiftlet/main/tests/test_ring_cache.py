"""The last good rings on a device: the stores beside them leave them alone, and a service starts with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from swiftlet.listing.pool import ListingStore
from swiftlet.main.rings import RINGS, RingSet
from swiftlet.main.services import container, object
from swiftlet.main.tests.test_rings import make_ring
from swiftlet.model import DatabaseKind
from swiftlet.names import HashPath
from swiftlet.ring import codec
from swiftlet.ring.codec import save
from swiftlet.settings import ContainerSettings, ObjectSettings
from swiftlet.store.native import NativeStore
from swiftlet.testing.ports import object_ports
from swiftlet.testing.store.conformance import NAME, at, key_of, put
from swiftlet.timestamp import Timestamp

RINGS_OF_ALL = ("account", "container", "object-0")


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def with_rings(device: Path, tmp_path: Path) -> dict[str, bytes]:
    """Have rings cached on a device, as its server does before it opens its store; the files."""
    device.mkdir(exist_ok=True)
    rings = tmp_path / "rings"
    rings.mkdir()
    for name in RINGS_OF_ALL:
        save(make_ring(), rings / f"{name}.ring")
    RingSet(rings, RINGS_OF_ALL, device / ".rings" / "object").refresh()
    found = files_below(device / ".rings")
    assert len(found) == len(RINGS_OF_ALL)
    return found


def test_a_store_leaves_them_alone(tmp_path: Path) -> None:
    device = tmp_path / "d0"
    cached = with_rings(device, tmp_path)
    for _ in range(2):
        store = NativeStore(device)
        for number in range(8):
            put(store, key_of(number), 1, b"data")
        assert store.policies() == [0]
        for number in range(8):
            store.delete(key_of(number), at(2), NAME)
        store.reclaim(at(3))
        assert [store.partitions(policy) for policy in store.policies()] in ([], [[]])
        store.close()
        assert files_below(device / ".rings") == cached


async def test_a_listing_store_leaves_them_alone(tmp_path: Path) -> None:
    device = tmp_path / "db"
    cached = with_rings(device, tmp_path)
    for number in range(2):
        store = ListingStore(device, HashPath(b"x"))
        await store.put_container(0, "a", f"c{number}", Timestamp(1), {}, None, 0)
        assert await store.partitions(DatabaseKind.CONTAINER) == [0]
        assert len(await store.databases(DatabaseKind.CONTAINER, 0)) == number + 1
        await store.delete_container(0, "a", f"c{number}", Timestamp(2))
        await store.close()
        assert files_below(device / ".rings") == cached


def object_app(cluster: dict[str, Any], devices: Path) -> web.Application:
    [port] = object_ports(1)
    section = {"devices_dir": devices, "devices": ["d0"], "reserve_percent": 0, "port": port}
    return object.create_app(ObjectSettings.model_validate({"cluster": cluster, "object": section}))


def container_app(cluster: dict[str, Any], devices: Path) -> web.Application:
    [port] = object_ports(1)
    section = {"devices_dir": devices, "devices": ["d0"], "port": port}
    return container.create_app(ContainerSettings.model_validate({"cluster": cluster, "container": section}))


@pytest.mark.parametrize("create", [object_app, container_app])
async def test_a_server_starts_with_them_when_there_are_no_others(
    tmp_path: Path, create: Callable[[dict[str, Any], Path], web.Application]
) -> None:
    (tmp_path / "d0").mkdir()
    (tmp_path / "rings").mkdir()
    for name in RINGS_OF_ALL:
        save(make_ring(versions=3), tmp_path / "rings" / f"{name}.ring")
    cluster = {"hash_path_suffix": "x", "key": "k" * 16, "rings": tmp_path / "rings"}
    cluster["ring_cache"] = tmp_path / "d0" / ".rings"
    for rings_there in (True, False):
        if not rings_there:
            shutil.rmtree(tmp_path / "rings")
        app = create(cluster, tmp_path)
        async with TestClient(TestServer(app)) as client:
            assert (await client.get("/readyz")).status == 200
            assert app[RINGS].container().version == 3


@pytest.mark.parametrize("create", [object_app, container_app])
async def test_a_server_hands_out_the_rings_that_it_uses(
    tmp_path: Path, create: Callable[[dict[str, Any], Path], web.Application]
) -> None:
    """Also those that only its device still has: a cluster may have lost its own copies."""
    device = tmp_path / "d0"
    device.mkdir()
    (tmp_path / "rings").mkdir()
    for name in RINGS_OF_ALL:
        save(make_ring(versions=3), tmp_path / "rings" / f"{name}.ring")
    cluster = {"hash_path_suffix": "x", "key": "k" * 16, "rings": tmp_path / "rings", "ring_cache": device / ".rings"}
    for rings_there in (True, False):
        if not rings_there:
            shutil.rmtree(tmp_path / "rings")
        async with TestClient(TestServer(create(cluster, tmp_path))) as client:
            answer = await client.get("/rings/container")
            assert (answer.status, codec.decode(await answer.read())) == (200, make_ring(versions=3))
            for other in ("object-7", "..", "%2e%2e%2fetc%2fpasswd"):
                assert (await client.get(f"/rings/{other}")).status == 404


def test_a_device_that_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    (tmp_path / "rings").mkdir()
    save(make_ring(), tmp_path / "rings" / "container.ring")
    rings = RingSet(tmp_path / "rings", ["container"], tmp_path / "d0" / ".rings" / "object")

    assert rings.refresh() == ["container"]
    assert not (tmp_path / "d0").exists()
