"""The direct way of the client while devices fail: behind a network that breaks for it alone, beside a sound proxy."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from swiftlet.client.batches import Batches
from swiftlet.client.bodies import BytesBody, StreamBody
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.errors import ConnectionFailed, NotFound
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.values import Content, ObjectRequest, Written
from swiftlet.main.tests.direct_cluster import DEVICES, DirectCluster
from swiftlet.main.tests.test_direct_way import Counted, make_container, parts_of, way_to
from swiftlet.ring import codec
from swiftlet.testing.network import Network
from swiftlet.testing.ways.conformance import read

OFFSET = 2000
"""How far the ports of the network are above those in the ring; native ports are 1000 above them."""
CONTAINER = "faults"
LARGE = random.Random(1).randbytes(3 << 20)
SMALL = random.Random(2).randbytes(20_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectCluster]:
    """A cluster of three object servers with a device each."""
    folder = tmp_path_factory.mktemp("cluster")
    with DirectCluster(folder, object_servers=len(DEVICES), guest_offset=OFFSET).in_thread() as cluster:
        cluster.wait(make_container(cluster, CONTAINER))
        yield cluster


@pytest.fixture
async def networks(cluster: DirectCluster) -> AsyncIterator[list[Network]]:
    """The networks to the devices, in their order."""
    networks = [Network(port + 1000) for port in cluster.object_ports]
    async with AsyncExitStack() as stack:
        for network in networks:
            server = await asyncio.start_server(network.serve, "127.0.0.1", network.port - 1000 + OFFSET)
            stack.callback(server.close)
        yield networks
    for network in networks:
        await network.end()


@pytest.fixture
async def way(cluster: DirectCluster, networks: list[Network]) -> AsyncIterator[DirectWay]:
    made = way_to(cluster)
    yield made
    await made.close()


async def test_a_device_that_dies_in_the_middle_of_a_put_is_done_without(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """It is not read from afterwards, as it has something older."""
    request = ObjectRequest(CONTAINER, "put")
    await way.put(request, BytesBody(b"older"))
    await way.close()
    networks[0].upwards.append(1 << 20)
    networks[0].goes_down = True
    with Counted(cluster, way) as counted:
        await way.put(request, StreamBody(_pieces(), len(LARGE)))
    assert "PUT" not in " ".join(counted.http)
    assert networks[0].cuts == 1
    networks[0].is_down = False
    for _ in range(6):
        assert await read(way, request) == LARGE


async def test_a_device_that_can_not_be_reached_is_done_without(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """Small objects are sent to all devices at once; what it has missed is not read from it."""
    request = ObjectRequest(CONTAINER, "small")
    await way.put(request, BytesBody(b"older"))
    await way.close()
    networks[0].is_down = True
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(SMALL))
        await way.put(ObjectRequest(CONTAINER, "deleted"), BytesBody(SMALL))
        await way.delete(ObjectRequest(CONTAINER, "deleted"))
    assert not [line for line in counted.http if "AUTH_test" in line]
    networks[0].is_down = False
    for _ in range(6):
        assert await read(way, request) == SMALL
        with pytest.raises(NotFound):
            await way.head(ObjectRequest(CONTAINER, "deleted"))


async def test_many_objects_of_which_one_device_has_nothing(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """What a message does not do is done singly; the two devices that are left are a quorum."""
    objects = Objects(way, Options(retry_wait_s=0.001))
    batches = Batches(objects, objects.put)
    names = [(CONTAINER, f"many/{number}") for number in range(8)]
    await way.put(ObjectRequest(CONTAINER, "many/none"), BytesBody(b""))
    await way.close()
    networks[1].is_down = True
    put = [one async for group in batches.put([(name, SMALL) for name in names]) for _, one in group]
    assert [one.size for one in put if isinstance(one, Written)] == [len(SMALL)] * 8
    networks[1].is_down = False
    got = [one async for group in batches.get(names) for _, one in group]
    assert [one.data for one in got if isinstance(one, Content)] == [SMALL] * 8
    await way.close()
    networks[2].is_down = True
    gone = [one async for group in batches.delete(names) for _, one in group]
    assert gone == [None] * 8
    networks[2].is_down = False


async def test_a_device_that_dies_in_the_middle_of_a_get_is_replaced(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    request = ObjectRequest(CONTAINER, "get")
    await way.put(request, BytesBody(LARGE))
    for _ in range(4):
        await way.close()
        for network in networks[:2]:
            network.downwards.append(1 << 20)
        with Counted(cluster, way) as counted:
            assert await read(way, request) == LARGE
        assert "GET /v1/AUTH_test" not in " ".join(counted.http)
        for network in networks:
            network.downwards.clear()
    assert sum(network.cuts for network in networks) > 0


async def test_a_client_that_dies_in_the_middle_of_a_put_leaves_nothing(
    cluster: DirectCluster, networks: list[Network], tmp_path: Path
) -> None:
    """It is killed after its second piece; the devices give up what they had of it."""
    program = (
        "import asyncio, sys\n"
        "from swiftlet.client import AsyncClient, Options, V1\n"
        "async def body():\n"
        "    yield bytes(1 << 20)\n"
        "    yield bytes(1 << 20)\n"
        "    print('half', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "async def main():\n"
        "    login = V1(auth_url=sys.argv[1], user='test:tester', key='secret')\n"
        "    client = AsyncClient(login, Options(metadata_url=sys.argv[2]))\n"
        f"    await client.put({CONTAINER!r}, 'killed', body(), size=3 << 20)\n"
        "asyncio.run(main())\n"
    )
    url = f"http://127.0.0.1:{cluster.proxy}/auth/v1.0"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, url, cluster.url, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(60):
        assert await child.stdout.readline() == b"half\n"
    child.send_signal(signal.SIGKILL)
    await child.wait()
    status, _ = await cluster.there(cluster.http("GET", f"{CONTAINER}/killed"))
    assert status == 404
    way = way_to(cluster)
    with pytest.raises(NotFound):
        await way.head(ObjectRequest(CONTAINER, "killed"))
    await way.close()


async def test_a_body_that_was_begun_is_not_sent_again(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """The caller is told, and nothing is half there; one that can be repeated goes over HTTP."""
    request = ObjectRequest(CONTAINER, "begun")
    for network in networks[:2]:
        network.upwards.append(1 << 20)
    with pytest.raises(ConnectionFailed):
        await way.put(request, StreamBody(_pieces(), len(LARGE)))
    with pytest.raises(NotFound):
        await way.head(request)
    await way.close()
    for network in networks[:2]:
        network.upwards.append(1 << 20)
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(LARGE))
    assert counted.http[-1] == f"PUT /v1/AUTH_test/{CONTAINER}/begun"
    assert await read(way, request) == LARGE


async def test_where_no_device_can_be_reached_all_goes_over_http(
    cluster: DirectCluster, way: DirectWay, networks: list[Network], caplog: pytest.LogCaptureFixture
) -> None:
    """That is said once, and tried again later."""
    for network in networks:
        network.is_down = True
    request = ObjectRequest(CONTAINER, "unreachable")
    for data in (b"1", b"2"):
        with Counted(cluster, way) as counted:
            await way.put(request, BytesBody(data))
            assert await read(way, request) == data
            await way.delete(request)
            with pytest.raises(NotFound):
                await way.delete(request)
        assert [line.partition(" ")[0] for line in counted.http][-4:] == ["PUT", "GET", "DELETE", "DELETE"]
    assert [record.levelname for record in caplog.records if record.name == "swiftlet.client"] == ["WARNING"]
    for network in networks:
        network.is_down = False
    # The transport itself waits a while before it connects again, to each device for itself.
    async with asyncio.timeout(60):
        while counted.http or counted.devices != 3:
            parts_of(way).devices._until = 0.0
            with Counted(cluster, way) as counted:
                await way.put(request, BytesBody(b"3"))
    assert counted.devices == 3


async def test_a_damaged_replica_is_passed_over(cluster: DirectCluster, way: DirectWay) -> None:
    request = ObjectRequest(CONTAINER, "damaged")
    await way.put(request, BytesBody(SMALL))
    damaged = 0
    for device in DEVICES[:2]:
        for path in (cluster.root / "objects" / device).rglob("*"):
            if path.is_file() and (at := path.read_bytes().find(SMALL)) >= 0:
                with path.open("r+b") as file:
                    os.pwrite(file.fileno(), b"damaged", at + 10_000)
                damaged += 1
    assert damaged == 2
    for _ in range(4):
        assert await read(way, request) == SMALL


async def test_a_newer_ring_is_fetched_when_a_device_tells_of_it(cluster: DirectCluster, way: DirectWay) -> None:
    request = ObjectRequest(CONTAINER, "ring")
    await way.put(request, BytesBody(SMALL))
    parts = parts_of(way)
    old = parts.rings.objects(0)
    ring = codec.load(cluster.root / "rings" / "object-0.ring")
    newer = type(ring)(ring.version + 1, ring.part_power, ring.replica_count, ring.devices, ring.rows)
    codec.save(newer, cluster.root / "rings" / "object-0.ring")
    async with asyncio.timeout(60):
        while parts.rings.objects(0).version == old.version:
            with Counted(cluster, way) as counted:
                assert await read(way, request) == SMALL
            assert "GET /v1/AUTH_test" not in " ".join(counted.http), "nobody waits for the ring"
    assert parts.rings.objects(0).version == newer.version


async def _pieces() -> AsyncIterator[bytes]:
    for start in range(0, len(LARGE), 1 << 18):
        yield LARGE[start : start + (1 << 18)]
