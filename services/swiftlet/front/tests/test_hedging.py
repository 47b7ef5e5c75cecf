"""A read through the front whose device is late is answered by another one."""

from __future__ import annotations

from pathlib import Path as Directory

from prometheus_client import REGISTRY

from swiftlet.front.tests.conftest import fronted_proxy
from swiftlet.front.tests.served import Relay
from swiftlet.names import Path
from swiftlet.placement.plan import Place
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, memory_cluster


def hedged() -> float:
    """Reads for which a second device was asked, as it is counted."""
    return REGISTRY.get_sample_value("swiftlet_hedged_reads_total") or 0.0


async def test_another_device_answers_for_one_that_is_late(tmp_path: Directory) -> None:
    async with (
        memory_cluster(tmp_path, devices=3) as cluster,
        fronted_proxy(cluster, tmp_path, timeouts_s=(60.0, 60.0)) as fronted,
        Relay.open(fronted.devices, cluster.devices[0]) as relay,
    ):
        await cluster.make_container()
        assert (await fronted.proxy.call("PUT", "c/o", data=b"data")).status == 201
        for _ in range(150):
            assert (await fronted.read()).body == b"data"
        relay.mute()
        begun = hedged()
        for _ in range(60):
            before = fronted.answered
            assert (await fronted.read()).body == b"data"
            assert fronted.answered > before, "nothing was handed over"
            if hedged() > begun:
                break
        assert hedged() > begun
        for _ in range(5):
            # What the silent device would have answered concerns no later request on the connection.
            assert (await fronted.read(method="HEAD")).status == 200
            assert (await fronted.read()).body == b"data"


async def test_of_a_local_policy_no_device_of_another_region_answers(tmp_path: Directory) -> None:
    path, here = Path(ACCOUNT, CONTAINER, "o"), Place("east", "z0")
    regions = ("east", "west")
    async with (
        memory_cluster(tmp_path, devices=4, replicas=2, regions=regions, place=here, quorum="local") as cluster,
        fronted_proxy(cluster, tmp_path, timeouts_s=(1.0, 1.0)) as fronted,
    ):
        by_region = {device.region: device for device in cluster.primaries(path)}
        async with Relay.open(fronted.devices, by_region["east"]) as relay:
            await cluster.make_container()
            # What has been replicated there, before it was overwritten.
            cluster.place(by_region["west"], 1, b"old")
            assert (await fronted.proxy.call("PUT", "c/o", data=b"new")).status == 201
            for _ in range(150):
                assert (await fronted.read()).body == b"new"
            relay.mute()
            for _ in range(3):
                # Python finds out what counts, as nobody else here has a primary's copy.
                assert (await fronted.proxy.call("GET", "c/o")).body == b"new"
