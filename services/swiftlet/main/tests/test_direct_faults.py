"""The direct way of the client while devices fail: behind a network that breaks for it alone, beside a sound proxy."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path as File

import pytest

from swiftlet.client.batches import Batches
from swiftlet.client.bodies import BytesBody, StreamBody
from swiftlet.client.direct import guest
from swiftlet.client.direct.grants import Kind
from swiftlet.client.direct.rings import PAUSE_S
from swiftlet.client.direct.way import Directly, DirectWay
from swiftlet.client.errors import ConnectionFailed, NotFound
from swiftlet.client.hedging import Hedge
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.values import Content, ObjectRequest, Written
from swiftlet.errors import NotFound as NodeNotFound
from swiftlet.errors import SwiftletError
from swiftlet.main.services import replicator
from swiftlet.main.tests.direct_cluster import DEVICES, DirectCluster, networks_before
from swiftlet.main.tests.test_direct_way import Counted, make_container, parts_of, way_to
from swiftlet.names import Path
from swiftlet.ring import codec
from swiftlet.ring.model import Device
from swiftlet.servers.objects import native_server
from swiftlet.settings import ReplicatorSettings
from swiftlet.testing.network import Network
from swiftlet.testing.ways.conformance import read
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_replicas import NativeReplicas

OFFSET = 2000
"""How far the ports of the network are above those in the ring; native ports are 1000 above them."""
CONTAINER = "faults"
LARGE = random.Random(1).randbytes(3 << 20)
SMALL = random.Random(2).randbytes(20_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectCluster]:
    """A cluster of three object servers with a device each."""
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        # Object servers look for the versions of rings as often as they measure.
        patch.setattr(native_server, "MEASURE_S", 0.2)
        with DirectCluster(folder, object_servers=len(DEVICES), guest_offset=OFFSET).in_thread() as cluster:
            cluster.wait(make_container(cluster, CONTAINER))
            yield cluster


@pytest.fixture
async def networks(cluster: DirectCluster) -> AsyncIterator[list[Network]]:
    """The networks to the devices, in their order."""
    async with networks_before(cluster, OFFSET) as made:
        yield made


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


async def test_a_device_that_missed_a_write_sends_everybody_elsewhere(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """A metadata server tells it, as devices believe no guest; others would be shown there what was before."""
    request = ObjectRequest(CONTAINER, "told")
    await way.put(request, BytesBody(b"older"))
    await cluster.there(cluster.prove())
    await way.close()
    networks[0].is_down = True
    await way.put(request, BytesBody(SMALL))
    parts = parts_of(way)
    rights = (await parts.granted(CONTAINER, Kind.READ, None)).rights
    replicas = NativeReplicas(parts.calls(rights, "told"))
    key = parts.objects(rights, CONTAINER, "told").key(Path(rights.account, CONTAINER, "told"), rights.policy)
    networks[0].is_down = False
    device = next(one for one in parts.rings.objects(rights.policy).devices if one is not None and one.id == 0)

    async def shown() -> str:
        try:
            return (await replicas.head(device, key, proved=True)).etag
        except SwiftletError as error:
            return type(error).__name__

    async with asyncio.timeout(60):
        while await shown() != "Unproved":  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)
    for _ in range(6):
        assert await cluster.there(cluster.http("GET", f"{CONTAINER}/told")) == (200, SMALL)
    assert await cluster.there(cluster.prove()), "one device was in doubt"


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
    cluster: DirectCluster, networks: list[Network], tmp_path: File
) -> None:
    """It is killed after its second piece; the devices give up what they had of it, and its space."""
    before = large_files(cluster)
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
    async with asyncio.timeout(60):
        while len(begun := large_files(cluster) - before) < len(DEVICES):  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    await child.wait()
    async with asyncio.timeout(60):
        while begun & large_files(cluster):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    status, _ = await cluster.there(cluster.http("GET", f"{CONTAINER}/killed"))
    assert status == 404
    way = way_to(cluster)
    with pytest.raises(NotFound):
        await way.head(ObjectRequest(CONTAINER, "killed"))
    await way.close()


async def test_a_cancelled_upload_leaves_nothing(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """The devices give up what they had of it, and the connections go on."""
    await way.put(ObjectRequest(CONTAINER, "warm"), BytesBody(b""))
    before = large_files(cluster)

    async def pieces() -> AsyncIterator[bytes]:
        yield LARGE[: 1 << 20]
        yield LARGE[1 << 20 : 2 << 20]
        await asyncio.Event().wait()

    upload = asyncio.ensure_future(way.put(ObjectRequest(CONTAINER, "cancelled"), StreamBody(pieces(), len(LARGE))))
    async with asyncio.timeout(60):
        while len(begun := large_files(cluster) - before) < len(DEVICES):  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    async with asyncio.timeout(60):
        while begun & large_files(cluster):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    with pytest.raises(NotFound):
        await way.head(ObjectRequest(CONTAINER, "cancelled"))
    with Counted(cluster, way) as counted:
        await way.put(ObjectRequest(CONTAINER, "cancelled"), BytesBody(SMALL))
    assert (counted.http, counted.devices) == ([], len(DEVICES))


async def at_once(*_: object) -> None:
    """Answer without waiting."""


async def test_a_read_of_a_device_that_is_late_is_made_of_another_one(
    cluster: DirectCluster, networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After as long as 95 of 100 reads take: nobody waits until it is clear that the device is silent."""
    slow = functools.partial(NativeSettings, silence_s=60.0, answer_timeout_s=60.0)
    monkeypatch.setattr(guest, "NativeSettings", slow)
    hedge, way = Hedge(), way_to(cluster)
    for _ in range(30):
        # Reads as short as these leave second requests to spare; real ones on a busy machine may use them up.
        await hedge.first(at_once, at_once)
    objects, request = Objects(way, Options()), ObjectRequest(CONTAINER, "late")
    monkeypatch.setattr(objects, "_hedge", hedge)
    try:
        await way.put(request, BytesBody(SMALL))
        networks[0].may_pass.clear()
        async with asyncio.timeout(60):
            while True:
                with Counted(cluster, way) as counted:
                    assert (await objects.get(request)).data == SMALL
                if counted.devices > 1:
                    break  # The first device that it asked was this one.
        assert not [line for line in counted.http if line.endswith("/late")]
    finally:
        networks[0].may_pass.set()
        await way.close()


async def test_a_body_that_was_begun_is_not_sent_again(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """The caller is told, and nothing is half there; one that can be repeated goes over HTTP."""
    request = ObjectRequest(CONTAINER, "begun")
    for network in networks[:2]:
        network.upwards.append(1 << 20)

    async def pieces() -> AsyncIterator[bytes]:
        yield LARGE[: 2 << 20]
        async with asyncio.timeout(60):
            # The end must not be sent before it is known that the devices are lost: the third one would keep it all.
            while True:
                yield b""
                await asyncio.sleep(0.01)

    with pytest.raises(ConnectionFailed):
        await way.put(request, StreamBody(pieces(), len(LARGE)))
    with pytest.raises(NotFound):
        await way.head(request)
    await way.close()
    for network in networks[:2]:
        network.upwards.append(1 << 20)
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(LARGE))
    assert counted.http[-1] == f"PUT /v1/AUTH_test/{CONTAINER}/begun"
    assert await read(way, request) == LARGE


async def test_a_grant_that_is_taken_away_in_the_middle_of_a_stream_lets_it_end(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """It is looked at when a request begins: what has begun goes on directly, and later requests need a new one."""
    request = ObjectRequest(CONTAINER, "revoked")

    async def revoked() -> None:
        async with cluster.session.delete(
            f"{cluster.url}/v1/grants/AUTH_test", headers={"X-Auth-Token": cluster.token}
        ) as answer:
            assert answer.status == 200
        ended = time.time()
        asked = {"account": "AUTH_test", "container": CONTAINER, "operations": ["get"]}
        async with asyncio.timeout(30):
            while (await cluster.ask(asked))[1]["issued"] < ended:  # noqa: ASYNC110 - looking is cheap
                await asyncio.sleep(0.02)

    async def pieces() -> AsyncIterator[bytes]:
        yield LARGE[: 1 << 20]
        yield LARGE[1 << 20 : 2 << 20]
        await cluster.there(revoked())
        yield LARGE[2 << 20 :]

    await way.put(request, BytesBody(b"older"))
    with Counted(cluster, way) as counted:
        await way.put(request, StreamBody(pieces(), len(LARGE)))
        stream = await way.get(request, None)
        parts = aiter(stream)
        first = await anext(parts)
        await cluster.there(revoked())
        assert b"".join([first, *[data async for data in parts]]) == LARGE
        await stream.close()
    assert not [line for line in counted.http if line.endswith("/revoked")]
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(SMALL))
        assert await read(way, request) == SMALL
    assert counted.http == ["POST /v1/grants"] * 2, "one to write, one to read"


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


def large_files(cluster: DirectCluster) -> set[File]:
    """Return the files of large objects on all devices, with those that are being written."""
    return {path for path in (cluster.root / "objects").glob("*/large/**/*") if path.is_file()}


def damage(cluster: DirectCluster, device: str, data: bytes) -> None:
    """Change some bytes of an object with these bytes, where a device has it."""
    for path in (cluster.root / "objects" / device).rglob("*"):
        if path.is_file() and "quarantined" not in path.parts and (at := path.read_bytes().find(data)) >= 0:
            with path.open("r+b") as file:
                os.pwrite(file.fileno(), b"damaged", at + len(data) // 2)
            return
    raise AssertionError(f"{device} does not have it")


async def replicate(cluster: DirectCluster) -> None:
    """Do a round of replication of all devices."""
    devices = [f"127.0.0.1:{port}/{device}" for port, device in zip(cluster.object_ports, DEVICES, strict=True)]
    settings = cluster._settings(replicator={"host": "127.0.0.1", "port": 1, "devices": devices})
    report = (await replicator.run_once(ReplicatorSettings.model_validate(settings), (), None, None)).copies
    assert not report.failed


async def test_a_damaged_replica_is_passed_over_and_repaired(cluster: DirectCluster, way: DirectWay) -> None:
    """What a guest's read finds is set aside at once, as what a member's finds: the next round brings it back."""
    stored = {"damaged": random.Random(3).randbytes(20_000), "large": random.Random(4).randbytes(3 << 20)}
    await way.put(ObjectRequest(CONTAINER, "warm"), BytesBody(b""))
    # Rounds leave alone what is so young that it may still be on its way: these objects are not.
    parts = parts_of(way)
    parts._ahead_ns -= 30 * 10**9
    parts.clock._last_ticks = 0
    for name, data in stored.items():
        await way.put(ObjectRequest(CONTAINER, name), BytesBody(data))
        for device in DEVICES[:2]:
            damage(cluster, device, data)

    async def at_each(name: str) -> list[str]:
        """Return what reads of each device end with."""
        rights = (await parts.granted(CONTAINER, Kind.READ, None)).rights
        replicas = NativeReplicas(parts.calls(rights, name))
        key = parts.objects(rights, CONTAINER, name).key(Path(rights.account, CONTAINER, name), rights.policy)
        outcomes = []
        for device in parts.rings.objects(rights.policy).devices:
            assert device is not None
            try:
                stream = await replicas.get(device, key)
                body = b"".join([bytes(data) async for data in stream.chunks()])
                outcomes.append("whole" if body == stored[name] else "damaged")
            except SwiftletError as error:
                outcomes.append(type(error).__name__)
        return outcomes

    for name, data in stored.items():
        for _ in range(4):
            assert await read(way, ObjectRequest(CONTAINER, name)) == data
        assert set((await at_each(name))[:2]) <= {"ChecksumMismatch", "NotFound"}
        assert (await at_each(name)) == ["NotFound", "NotFound", "whole"], "a damaged copy is read once"
    await cluster.there(replicate(cluster))
    for name in stored:
        assert await at_each(name) == ["whole"] * 3


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
            await asyncio.sleep(0.05)
    assert parts.rings.objects(0).version == newer.version


async def test_a_device_that_has_moved_is_found_by_the_newer_ring(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    """By the older one it can't be reached, and is done without."""
    request = ObjectRequest(CONTAINER, "moved")
    path = cluster.root / "rings" / "object-0.ring"
    ring = codec.load(path)

    def publish(version: int, port: int | None = None) -> None:
        def at(one: Device | None) -> Device | None:
            return replace(one, port=port) if port is not None and one is not None and one.device == DEVICES[2] else one

        devices = tuple(at(one) for one in ring.devices)
        codec.save(type(ring)(version, ring.part_power, ring.replica_count, devices, ring.rows), path)

    async def has_ring(version: int) -> None:
        async with asyncio.timeout(60):
            while True:
                await way.put(request, BytesBody(b"older"))
                if parts_of(way).rings.objects(0).version == version:
                    return
                await asyncio.sleep(0.05)

    publish(ring.version + 1, port=1)
    await has_ring(ring.version + 1)
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(SMALL))
        assert await read(way, request) == SMALL
    assert not [line for line in counted.http if line.endswith("/moved")]
    publish(ring.version + 2)
    await has_ring(ring.version + 2)
    # Metadata servers are told in the background of the writes that the device has missed.
    telling = parts_of(way).reports._telling
    assert telling is not None
    async with asyncio.timeout(60):
        await telling
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(SMALL))
    assert (counted.http, counted.devices) == ([], 3)


async def test_what_is_not_found_by_an_old_ring_is_looked_for_by_the_newer_one(
    cluster: DirectCluster, way: DirectWay
) -> None:
    """The devices that do not have it tell of the newer ring, which is waited for."""
    request = ObjectRequest(CONTAINER, "moved-away")
    path = cluster.root / "rings" / "object-0.ring"
    ring = codec.load(path)
    await way.put(request, BytesBody(SMALL))
    parts = parts_of(way)
    before = parts.rings.objects(0)
    codec.save(type(ring)(ring.version + 1, ring.part_power, ring.replica_count, ring.devices, ring.rows), path)
    url, headers = f"{cluster.url}/v1/rings/gold", {"X-Auth-Token": cluster.token}

    async def handed_out() -> int:
        async with cluster.session.get(url, headers=headers) as answer:
            return int(answer.headers["X-Ring-Version"])

    async with asyncio.timeout(60):
        while await cluster.there(handed_out()) <= before.version:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)
    parts.rings._known[0].asked_at -= PAUSE_S
    by = list[int]()

    async def attempt(to: Directly) -> str:
        by.append(to.parts.rings.objects(0).version)
        if by[-1] == before.version:
            to.parts.rings.told(0, before.version + 1)
        if len(by) == 1:
            raise NodeNotFound("nothing is there")
        return "found"

    assert await way._try(request, Kind.READ, attempt, what="GET") == "found"
    assert by == [before.version, before.version + 1]

    async def never(to: Directly) -> str:
        by.append(to.parts.rings.objects(0).version)
        raise NodeNotFound("nothing is there")

    with pytest.raises(NotFound):
        await way._try(request, Kind.READ, never, what="GET")
    assert len(by) == 3, "by the same ring it is looked for once"


async def _pieces() -> AsyncIterator[bytes]:
    for start in range(0, len(LARGE), 1 << 18):
        yield LARGE[start : start + (1 << 18)]
