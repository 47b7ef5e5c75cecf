"""Rows that the front delivers itself to container servers with a native node, and what it leaves to Python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path as Directory
from typing import cast

import pytest

from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, fronted_proxy, until
from swiftlet.front.tests.served import NativeContainers, Relay
from swiftlet.front.tests.test_writes import TYPE, listed
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, make_ring
from swiftlet.store.native import NativeStore


@pytest.fixture
def containers(cluster: MemoryCluster, tmp_path: Directory) -> Iterator[NativeContainers]:
    made = NativeContainers(cluster, tmp_path)
    made.open(cluster.container_partition(), ACCOUNT, CONTAINER)
    yield made
    made.close()


@pytest.fixture
async def fronted(
    cluster: MemoryCluster, tmp_path: Directory, containers: NativeContainers
) -> AsyncIterator[FrontedProxy]:
    async with fronted_proxy(cluster, tmp_path, containers=containers) as made:
        await warm(made)
        yield made


async def warm(fronted: FrontedProxy) -> None:
    """Write until the front delivers rows."""
    async with asyncio.timeout(PATIENCE_S):
        taken = fronted.rows["taken"]
        while fronted.rows["taken"] == taken:
            assert (await fronted.proxy.call("PUT", "c/warm", TYPE, b"x")).status == 201
            await asyncio.sleep(0.02)


def taken(containers: NativeContainers, cluster: MemoryCluster) -> list[set[str]]:
    """The names that each server has taken; they stay there."""
    place = cluster.container_partition(), ACCOUNT, CONTAINER
    found = []
    for table in containers.tables.values():
        rows = table.take_out(*place)
        table.folded(*place, False)
        found.append({row[0] for row in rows})
    return found


def pending(cluster: MemoryCluster, name: str) -> list[int]:
    """What each of an object's devices has pending for it, as bits."""
    path = Path(ACCOUNT, CONTAINER, name)
    digest = cluster.key(path).digest
    stores = [cast("NativeStore", cluster.stores[device.address]) for device in cluster.primaries(path)]
    return [bits for store in stores for key, _, bits in store.pending_updates(0.0, 1000) if key.digest == digest]


async def test_all_replicas_take_rows_and_devices_forget_them(
    fronted: FrontedProxy, containers: NativeContainers, cluster: MemoryCluster
) -> None:
    names = {f"o{number}" for number in range(20)}
    before = fronted.rows
    for name in names:
        assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, b"x")).status == 201
        assert all(name in found for found in taken(containers, cluster)), "before the client is answered"
    assert (await fronted.proxy.call("DELETE", "c/o1")).status == 204
    rows = fronted.rows
    assert rows["taken"] == before["taken"] + 21
    assert (rows["refused"], rows["left"]) == (before["refused"], before["left"])
    assert not names & set(await listed(fronted)), "Python has not been asked for any of them"
    for name in names:
        await until(lambda name=name: not pending(cluster, name))  # type: ignore[misc] # called at once


async def test_many_at_once(fronted: FrontedProxy, containers: NativeContainers, cluster: MemoryCluster) -> None:
    before = fronted.rows

    async def some(number: int) -> None:
        for turn in range(10):
            assert (await fronted.proxy.call("PUT", f"c/{number}-{turn}", TYPE, b"x")).status == 201

    await asyncio.gather(*map(some, range(20)))
    expected = {f"{number}-{turn}" for number in range(20) for turn in range(10)}
    delivered = fronted.rows["taken"] - before["taken"]
    assert delivered > 100
    shown = set(await listed(fronted))
    assert all(expected <= found | shown for found in taken(containers, cluster))


async def test_a_replica_that_does_not_take_rows(
    fronted: FrontedProxy, containers: NativeContainers, cluster: MemoryCluster
) -> None:
    """Python lists them; it goes on natively once it may."""
    place = cluster.container_partition(), ACCOUNT, CONTAINER
    table = next(iter(containers.tables.values()))
    table.close(*place)
    for name in ("p", "q"):
        assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, b"x")).status == 201
        assert name in await listed(fronted)
    assert fronted.rows["refused"] + fronted.rows["left"] >= 2
    table.open(*place)
    await warm(fronted)


async def test_a_server_that_is_gone_and_comes_back(
    fronted: FrontedProxy, containers: NativeContainers, cluster: MemoryCluster
) -> None:
    """Python lists the rows while it is gone; what it had taken is in its table again."""
    assert (await fronted.proxy.call("PUT", "c/before", TYPE, b"x")).status == 201
    await until(lambda: not pending(cluster, "before"))
    device = cluster.devices[1]
    containers.kill(device)
    for name in ("p", "q"):
        assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, b"x")).status == 201
        assert name in await listed(fronted)
    containers.start(device)
    containers.open(cluster.container_partition(), ACCOUNT, CONTAINER)
    await warm(fronted)
    assert all("before" in found for found in taken(containers, cluster))


async def test_a_server_that_ends_before_rows_are_durable(
    fronted: FrontedProxy, containers: NativeContainers, cluster: MemoryCluster
) -> None:
    """Clients have been answered; what it has not confirmed stays pending at the devices. Python does not get it."""
    device = cluster.devices[1]
    for attempt in range(10):
        name, before = f"killed{attempt}", fronted.rows
        assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, b"x")).status == 201
        containers.kill(device)
        assert fronted.rows["taken"] == before["taken"] + 1
        await until(lambda: fronted.rows["syncing"] + fronted.rows["acknowledging"] == 0)
        if left := pending(cluster, name):
            break
        containers.start(device)
        containers.open(cluster.container_partition(), ACCOUNT, CONTAINER)
        await warm(fronted)
    assert len(left) == 3
    assert name not in await listed(fronted)


async def test_a_silent_server(fronted: FrontedProxy, containers: NativeContainers, cluster: MemoryCluster) -> None:
    """It costs half a second once, and then it gets no rows until it has answered something."""
    device = cluster.devices[1]
    containers.kill(device)
    containers.start(device)
    containers.open(cluster.container_partition(), ACCOUNT, CONTAINER)
    async with Relay.open(containers, device) as relay:
        await warm(fronted)
        relay.mute()
        begun = time.monotonic()
        assert (await fronted.proxy.call("PUT", "c/silent", TYPE, b"x")).status == 201
        assert "silent" in await listed(fronted)
        assert time.monotonic() - begun < 3.0
        begun, refused = time.monotonic(), fronted.rows["refused"]
        for number in range(5):
            assert (await fronted.proxy.call("PUT", f"c/after{number}", TYPE, b"x")).status == 201
        assert time.monotonic() - begun < 3.0
        assert fronted.rows["refused"] == refused


async def test_a_ring_that_changes(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """With another number of replicas than devices keep updates for, Python decides; then rows go by the new ring."""
    before, ring = fronted.rows["taken"], cluster.rings.container()
    running = fronted.running
    assert running.containers is not None
    running.containers._tell(make_ring(3, replicas=2))
    assert (await fronted.proxy.call("PUT", "c/changed", TYPE, b"x")).status == 201
    assert fronted.rows["taken"] == before
    assert "changed" in await listed(fronted)
    running.containers._tell(ring)
    await warm(fronted)


async def test_servers_without_a_native_node(cluster: MemoryCluster, tmp_path: Directory) -> None:
    containers = NativeContainers(cluster, tmp_path)
    containers.close()
    async with fronted_proxy(cluster, tmp_path, containers=containers) as fronted:
        async with asyncio.timeout(PATIENCE_S):
            while not fronted.answered:
                assert (await fronted.proxy.call("PUT", "c/warm", TYPE, b"x")).status == 201
                await asyncio.sleep(0.01)
        for number in range(20):
            assert (await fronted.proxy.call("PUT", f"c/o{number}", TYPE, b"x")).status == 201
        assert {f"o{number}" for number in range(20)} <= set(await listed(fronted))
        assert fronted.rows["left"] >= 10
        assert (fronted.rows["taken"], fronted.rows["refused"]) == (0, 0)


async def test_a_process_that_ends_tells_devices_first(
    cluster: MemoryCluster, tmp_path: Directory, containers: NativeContainers
) -> None:
    names = [f"last{number}" for number in range(20)]
    async with fronted_proxy(cluster, tmp_path, containers=containers) as ending:
        await warm(ending)
        answers = await asyncio.gather(*(ending.proxy.call("PUT", f"c/{name}", TYPE, b"x") for name in names))
        assert {answer.status for answer in answers} == {201}
        await ending.front.leave()
        rows = ending.rows
        assert (rows["delivering"], rows["syncing"], rows["acknowledging"]) == (0, 0, 0)
        await until(lambda: not any(pending(cluster, name) for name in names))


async def test_pythons_writes_are_newer(fronted: FrontedProxy) -> None:
    """Whatever happens to the wall clock."""
    assert (await fronted.proxy.call("PUT", "c/o", TYPE, b"front")).status == 201
    fronted.proxy.clock.now -= 3600.0
    assert (await fronted.proxy.call("PUT", "c/o", TYPE, b"python", query="x=y")).status == 201
    assert (await fronted.proxy.call("GET", "c/o")).body == b"python"
