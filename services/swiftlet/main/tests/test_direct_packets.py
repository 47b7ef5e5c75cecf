"""Round trips of the direct way, counted by packets with payload: with a grant in hand one, from a cold start four.

A heartbeat, or another packet of the cluster, may fall between those of a request. That adds to what is counted and
takes nothing from it, so requests are made until one is counted alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from swiftlet.client.bodies import BytesBody
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.errors import NotFound
from swiftlet.client.values import ObjectRequest
from swiftlet.main.tests.direct_cluster import DEVICES, DirectCluster
from swiftlet.main.tests.test_direct_way import make_container, way_to
from swiftlet.testing.packets import Packet, Sniffer, data_segments, round_trips
from swiftlet.testing.ways.conformance import read
from swiftlet.transport.native_calls import PORT_OFFSET

DATA = bytes(range(256)) * 40
ONE, NONE = (1, 1), (0, 0)
"""Packets to a device and from it."""
TIMES = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectCluster]:
    """Three object servers with a device each."""
    with DirectCluster(tmp_path_factory.mktemp("packets"), object_servers=len(DEVICES)).in_thread() as cluster:
        cluster.wait(make_container(cluster, "packets"))
        yield cluster


@pytest.fixture
async def way(cluster: DirectCluster) -> AsyncIterator[DirectWay]:
    """A way with a grant to write, one to read, the ring, and connections to all devices."""
    made = way_to(cluster)
    for number in range(20):
        await made.put(ObjectRequest("packets", f"{number}"), BytesBody(DATA))
        assert await read(made, ObjectRequest("packets", f"{number}")) == DATA
    yield made
    await made.close()


async def test_with_a_grant_in_hand_a_request_is_one_packet_to_a_device_and_its_answer_is_one(
    cluster: DirectCluster, way: DirectWay
) -> None:
    """So there is one round trip: what asks again, or sends the body after an answer, takes more packets."""
    request = ObjectRequest("packets", "a")
    ports = [port + PORT_OFFSET for port in cluster.object_ports]

    async def counted(ask: Callable[[], Awaitable[object]], expected: list[tuple[int, int]]) -> None:
        seen = list[list[tuple[int, int]]]()
        while not seen or sorted(seen[-1]) != expected:
            assert len(seen) < TIMES, seen
            # Of a device in doubt reads ask others as well.
            await cluster.there(cluster.prove())
            cluster.requests.clear()
            before = [data_segments(port) for port in ports]
            await ask()
            after = [data_segments(port) for port in ports]
            seen.append([(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after, strict=True)])
            assert not cluster.requests, "only devices are asked"

    async def reads() -> None:
        assert await read(way, request) == DATA

    await counted(lambda: way.put(request, BytesBody(DATA)), [ONE, ONE, ONE])
    await counted(reads, [NONE, NONE, ONE])
    await counted(lambda: way.head(request), [NONE, NONE, ONE])

    async def deletes() -> None:
        # The same packets say that it is not there any more, if it is counted more than once.
        with suppress(NotFound):
            await way.delete(request)

    await way.put(request, BytesBody(DATA))
    await counted(deletes, [ONE, ONE, ONE])


@contextmanager
def sniffing(ports: set[int]) -> Iterator[Sniffer]:
    try:
        sniffer = Sniffer(ports)
    except PermissionError:
        pytest.skip("only root may see what goes over the wire")
    sniffer.start()
    try:
        yield sniffer
    finally:
        sniffer.stop()


@pytest.mark.parametrize("policy", ["gold", "silver"])
async def test_a_cold_start_takes_four_round_trips(tmp_path_factory: pytest.TempPathFactory, policy: str) -> None:
    """The token; the grant, with the ring beside it; the proof of who both sides are; and the request.

    That is so in whichever policy: nobody has to know it ahead.

    With one object server: connections to several are made side by side, and none waits for the others.
    """
    with DirectCluster(tmp_path_factory.mktemp("cold")).in_thread() as cluster:
        cluster.wait(make_container(cluster, "packets", policy))
        seen = list[str]()
        while not seen or not seen[-1].startswith("4:"):
            assert len(seen) < TIMES, seen
            trips, packets = await cold_start(cluster)
            seen.append(f"{trips}: " + " ".join(f"{p.source}>{p.target}:{len(p.payload)}" for p in packets))
            assert trips >= 4, seen[-1]


async def cold_start(cluster: DirectCluster) -> tuple[int, list[Packet]]:
    """Store an object by a client that has nothing yet; return how many round trips that took, and its packets."""
    native = cluster.objects + PORT_OFFSET
    way = way_to(cluster)
    with sniffing({cluster.proxy, cluster.metadata, native}) as sniffer:
        await way.put(ObjectRequest("packets", "cold"), BytesBody(DATA))
    caller = way._parts.here()._caller
    assert caller is not None
    # Members of the cluster have connections to the object server as well, but show no session.
    clients = {p.source for p in sniffer.heard if p.target != native or caller.session in p.payload}
    clients -= {cluster.proxy, cluster.metadata, native}
    await way.close()
    packets = [p for p in sniffer.heard if {p.source, p.target} & clients]
    assert packets[0].payload.startswith(b"GET /auth/v1.0 ")
    return round_trips(packets, clients), packets
