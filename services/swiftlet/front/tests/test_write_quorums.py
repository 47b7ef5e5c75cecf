"""What acknowledges a write is the same whether the front or Python writes: the devices, the rows, the refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path as Directory

import pytest

from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, fronted_proxy
from swiftlet.names import Path
from swiftlet.placement.plan import Place
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, memory_cluster
from swiftlet.placement.write_plan import plan_write
from swiftlet.ring.model import Device, WriteQuorum

HERE = Place("east", "z0")
NAMES = [f"o{number}" for number in range(12)]


def planned(cluster: MemoryCluster, quorum: WriteQuorum, name: str) -> list[Device]:
    """The devices that a write by Python begins with."""
    partition = cluster.key(Path(ACCOUNT, CONTAINER, name)).partition
    return sorted(plan_write(cluster.ring, partition, quorum=quorum, place=HERE).slots, key=lambda device: device.id)


def holders(cluster: MemoryCluster, name: str) -> list[Device]:
    """The devices that have an object."""
    path = Path(ACCOUNT, CONTAINER, name)
    return [device for device in cluster.devices if cluster.info(device, path)]


async def by_front(fronted: FrontedProxy, name: str) -> int:
    """The status of a PUT that the front has answered: repeated until it does."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            fronted.running.routes.tell(0)
            await fronted.grant_writes()
            before = fronted.answered
            answer = await fronted.proxy.call("PUT", f"c/{name}", data=b"data")
            if fronted.answered > before:
                return answer.status
            assert answer.status == 201


@pytest.mark.parametrize("quorum", ["local", "each-region", "majority"])
@pytest.mark.parametrize(
    ("regions", "devices", "replicas"),
    [
        (("east", "west"), 9, 3),
        (("east", "north", "west"), 12, 3),
        (("west", "east"), 7, 4),
        (("west", "north", "east"), 8, 2),
        (("east", "west"), 4, 3),
    ],
)
async def test_the_front_writes_to_the_same_devices_as_python(
    tmp_path: Directory, regions: tuple[str, ...], devices: int, replicas: int, quorum: WriteQuorum
) -> None:
    async with (
        memory_cluster(
            tmp_path, devices=devices, replicas=replicas, regions=regions, place=HERE, quorum=quorum
        ) as cluster,
        fronted_proxy(cluster, tmp_path) as fronted,
    ):
        await cluster.make_container()
        for name in NAMES:
            assert await by_front(fronted, name) == 201
            assert holders(cluster, name) == planned(cluster, quorum, name)
            if quorum == "local":
                assert {device.region for device in holders(cluster, name)} == {"east"}
        before = fronted.answered
        for name in NAMES[:6]:
            await fronted.grant_writes()
            assert (await fronted.proxy.call("DELETE", f"c/{name}")).status == 204
            assert holders(cluster, name) == []
            assert (await fronted.proxy.call("GET", f"c/{name}")).status == 404
            await cluster.put(3, path=Path(ACCOUNT, CONTAINER, f"by python {name}"))
            assert holders(cluster, f"by python {name}") == planned(cluster, quorum, f"by python {name}")
        assert fronted.answered > before, "some deletions were the front's"
        for device in cluster.container_devices():
            if quorum == "local" and device.region != "east":
                continue
            assert set(NAMES[6:]) <= set(await cluster.listed(device))


async def test_what_is_only_elsewhere_is_deleted_and_read(tmp_path: Directory) -> None:
    regions = ("east", "north", "west")
    async with (
        memory_cluster(tmp_path, devices=12, regions=regions, place=HERE, quorum="local") as cluster,
        fronted_proxy(cluster, tmp_path) as fronted,
    ):
        await cluster.make_container()
        path = Path(ACCOUNT, CONTAINER, "o")
        for device in [device for device in cluster.devices if device.region == "west"][:2]:
            cluster.place(device, 3, b"there", path)
        await fronted.grant_writes()
        elsewhere = [device for device in cluster.ring.may_hold(cluster.key(path).partition) if cluster.info(device)]
        answer = await fronted.proxy.call("GET", "c/o")
        assert (answer.status, answer.body) == ((200, b"there") if elsewhere else (404, answer.body))
        assert elsewhere, "a device of each region may have it"
        assert (await fronted.proxy.call("DELETE", "c/o")).status == 204
        assert (await fronted.proxy.call("GET", "c/o")).status == 404


async def test_without_a_region_neither_acknowledges_and_the_reason_names_it(tmp_path: Directory) -> None:
    async with (
        memory_cluster(
            tmp_path, devices=6, regions=("east", "north", "west"), place=HERE, quorum="each-region", suppress_after=1
        ) as cluster,
        fronted_proxy(cluster, tmp_path, timeouts_s=(2.0, 0.5)) as fronted,
    ):
        await cluster.make_container()
        assert await by_front(fronted, "before") == 201
        away = [device for device in cluster.devices if device.region == "west"]
        for device in away:
            fronted.devices.stop(device, cluster)
        with cluster.down(*away):
            reasons = []
            for _ in range(3):
                answer = await fronted.proxy.call("PUT", "c/o", data=b"data")
                assert answer.status == 503
                reasons.append(answer.body.decode())
        assert "in region west 1 replica must answer, 0 did" in reasons[0]
        assert "too few devices in region west have answered lately" in reasons[-1]
