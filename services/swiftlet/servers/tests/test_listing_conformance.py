"""What every listing transport does, over HTTP and in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.boundaries.listings import ListingTransport
from swiftlet.errors import NodeUnreachable, NotEmpty, NotFound, PolicyConflict, Superseded, TooMuchMetadata
from swiftlet.model import ContainerRow, ListingQuery, MetadataBounds, ObjectRow, Subdir
from swiftlet.ring.model import Device
from swiftlet.servers.tests.listing_cluster import ListingCluster, device, http_cluster, memory_cluster
from swiftlet.timestamp import ZERO, Timestamp

STRANGE = "d\u00e9j\u00e0 vu/\u65e5\u672c?&=+% \U0001f600\x01\ud7ff\U0010ffff"
PART = 7


def at(second: float) -> Timestamp:
    return Timestamp.at(second, nonce=3)


def row(name: str, second: float, size: int = 1, deleted: bool = False) -> ObjectRow:
    return ObjectRow(name, at(second)) if deleted else ObjectRow(name, at(second), size, "e" * 32, "text/plain")


@pytest.fixture(params=["memory", "http"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ListingCluster]:
    make = memory_cluster if request.param == "memory" else http_cluster
    async with make(tmp_path, 1) as made:
        yield made


class Container:
    """One container on one device."""

    def __init__(self, cluster: ListingCluster, account: str = "AUTH_a", name: str = STRANGE) -> None:
        self.transport: ListingTransport = cluster.transport
        self.device: Device = cluster.devices[0]
        self.place: tuple[Device, int, str, str] = (self.device, PART, account, name)

    async def put(self, second: float, policy: int | None = None, default: int = 0, **metadata: str) -> bool:
        return await self.transport.put_container(*self.place, at(second), metadata, policy, default)

    async def names(self, query: ListingQuery | None = None) -> list[str]:
        _, page = await self.transport.list_objects(*self.place, query or ListingQuery())
        return [f"<{entry.name}>" if isinstance(entry, Subdir) else entry.name for entry in page]


@pytest.fixture
def container(cluster: ListingCluster) -> Container:
    return Container(cluster)


@pytest.mark.parametrize("later", [False, True])
async def test_rows_are_brought_and_listed_at_once(container: Container, later: bool) -> None:
    transport, place = container.transport, container.place
    with pytest.raises(NotFound):
        await transport.bring_rows(*place, [row("o", 1)], later)
    await container.put(1)
    durable = await transport.bring_rows(*place, [row("o", 2), row(STRANGE, 2)], later)
    assert sorted(await container.names()) == sorted(["o", STRANGE])
    if not later:
        assert durable is None
    if durable is not None:
        await durable
    await transport.bring_rows(*place, [ObjectRow("o", at(3), deleted=True)], False)
    assert await container.names() == [STRANGE]


async def test_container_from_birth_to_rebirth(container: Container) -> None:
    transport, place = container.transport, container.place
    with pytest.raises(NotFound):
        await transport.container_info(*place)
    with pytest.raises(NotFound):
        await transport.update_rows(*place, [row("o", 1)])
    assert await container.put(10, None, 2, Color="blue", Gone="soon")
    assert not await container.put(11, Gone="")
    info = await transport.container_info(*place)
    assert (info.account, info.container) == place[2:]
    assert (info.policy, info.created, info.put_timestamp) == (2, at(10), at(11))
    assert info.metadata == {"Color": "blue"}
    with pytest.raises(PolicyConflict):
        await container.put(12, 1)
    await transport.post_container(*place, at(12), {"Color": "red", STRANGE: STRANGE})
    await transport.post_container(*place, at(11.5), {"Color": "late"})
    assert (await transport.container_info(*place)).metadata == {"Color": "red", STRANGE: STRANGE}
    await transport.delete_container(*place, at(20))
    for attempt in (
        transport.container_info(*place),
        transport.post_container(*place, at(21), {}),
        transport.delete_container(*place, at(21)),
        transport.list_objects(*place, ListingQuery()),
        transport.update_rows(*place, [row("o", 21)]),
    ):
        with pytest.raises(NotFound) as caught:
            await attempt
        assert caught.value.timestamp == at(20)
    with pytest.raises(Superseded) as lost:
        await container.put(19)
    assert lost.value.timestamp == at(20)
    assert await container.put(30, 1)
    info = await transport.container_info(*place)
    assert (info.policy, info.created, info.metadata) == (1, at(30), {})


async def test_rows_and_totals(container: Container) -> None:
    transport, place = container.transport, container.place
    await container.put(1)
    await transport.update_rows(*place, [row("a", 2, 10), row(STRANGE, 2, 20), row("a", 3, 5), row("a", 2.5, 99)])
    info, page = await transport.list_objects(*place, ListingQuery())
    assert (info.object_count, info.bytes_used) == (2, 25)
    assert list(page) == [row("a", 3, 5), row(STRANGE, 2, 20)]
    with pytest.raises(NotEmpty):
        await transport.delete_container(*place, at(9))
    await transport.update_rows(*place, [ObjectRow("a", at(4), deleted=True), row("a", 3.5)])
    await transport.update_rows(*place, [ObjectRow(STRANGE, at(4), deleted=True)])
    await transport.update_rows(*place, [])
    info = await transport.container_info(*place)
    assert (info.object_count, info.bytes_used) == (0, 0)
    assert await container.names() == []
    await transport.delete_container(*place, at(9))


async def test_pages(container: Container) -> None:
    await container.put(1)
    names = ["a", "b/1", "b/2", "b//3", "c--x", "c--y", "d", STRANGE]
    await container.transport.update_rows(*container.place, [row(name, 2) for name in names])
    ordered = sorted(names, key=lambda name: name.encode())
    assert await container.names() == ordered
    assert await container.names(ListingQuery(reverse=True)) == ordered[::-1]
    assert await container.names(ListingQuery(limit=2, marker="a")) == ["b//3", "b/1"]
    assert await container.names(ListingQuery(delimiter="/", end_marker="d")) == ["a", "<b/>", "c--x", "c--y"]
    assert await container.names(ListingQuery(delimiter="--", prefix="c")) == ["<c-->"]
    assert await container.names(ListingQuery(path="b")) == ["b/1", "b/2"]
    assert await container.names(ListingQuery(path="")) == ["a", "c--x", "c--y", "d"]
    assert await container.names(ListingQuery(marker=STRANGE[:-1])) == [STRANGE]
    assert await container.names(ListingQuery(limit=0)) == []


async def test_account(cluster: ListingCluster) -> None:
    transport: ListingTransport = cluster.transport
    place = (cluster.devices[0], PART, STRANGE)
    with pytest.raises(NotFound):
        await transport.account_info(*place)
    assert await transport.put_account(*place, at(1), {"Quota": "5"})
    assert not await transport.put_account(*place, at(2), {})
    await transport.post_account(*place, at(3), {"Quota": "6"})
    first = ContainerRow("c", at(4), ZERO, 3, 300, 1, at(5))
    await transport.update_containers(*place, [first, ContainerRow("b/x", at(4), ZERO, 1, 10, 0, at(5))])
    await transport.update_containers(*place, [ContainerRow("c", at(3), ZERO, 99, 99, 0, at(4.5))])
    info, page = await transport.list_containers(*place, ListingQuery(delimiter="/"))
    assert (info.container_count, info.object_count, info.bytes_used) == (2, 4, 310)
    assert info.metadata == {"Quota": "6"}
    assert list(page) == [Subdir("b/"), first]
    with pytest.raises(NotEmpty):
        await transport.delete_account(*place, at(9))
    gone = [ContainerRow("c", at(4), at(6), 0, 0, 1, at(7)), ContainerRow("b/x", at(4), at(6), 0, 0, 0, at(7))]
    await transport.update_containers(*place, gone)
    assert (await transport.account_info(*place)).container_count == 0
    await transport.delete_account(*place, at(10))
    with pytest.raises(NotFound):
        await transport.account_info(*place)
    assert await transport.put_account(*place, at(11), {})
    assert (await transport.account_info(*place)).metadata == {}


async def test_metadata_have_bounds_over_all_requests(container: Container) -> None:
    transport, place = container.transport, container.place
    bounds = MetadataBounds("M-", items=2, size_bytes=20)

    async def post(second: float, **items: str) -> dict[str, str]:
        metadata = {name.replace("_", "-"): value for name, value in items.items()}
        await transport.post_container(*place, at(second), metadata, bounds)
        return dict((await transport.container_info(*place)).metadata)

    assert await container.put(1)
    assert await post(2, M_A="1", Other="x" * 100) == {"M-A": "1", "Other": "x" * 100}
    await post(3, M_B="2")
    with pytest.raises(TooMuchMetadata, match="Too many metadata items; max 2"):
        await post(4, M_C="3", Other="y")
    with pytest.raises(TooMuchMetadata, match="Total metadata too large; max 20"):
        await post(5, M_B="\u00e9" * 10)
    with pytest.raises(TooMuchMetadata, match="max 2"):
        await transport.put_container(*place, at(6), {"M-C": "3"}, None, 0, bounds)
    assert await post(7, M_A="", M_C="3") == {"M-B": "2", "M-C": "3", "Other": "x" * 100}
    await transport.post_container(*place, at(8), {"M-D": "4", "M-E": "5" * 50})
    assert await post(9, M_B="", Other="z") == {"M-C": "3", "M-D": "4", "M-E": "5" * 50, "Other": "z"}
    with pytest.raises(TooMuchMetadata):
        await post(10, M_C="33")


async def test_names_of_removed_metadata_have_bounds_too(container: Container) -> None:
    """They are remembered until replicas have forgotten them."""
    transport, place = container.transport, container.place
    bounds = MetadataBounds("M-", items=3, size_bytes=1000)
    assert await container.put(1)
    for number in range(10):
        names = [f"M-{number}-{item}" for item in range(3)]
        await transport.post_container(*place, at(10 + number), dict.fromkeys(names, "x"), bounds)
        await transport.post_container(*place, at(10.5 + number), dict.fromkeys(names, ""), bounds)
    with pytest.raises(TooMuchMetadata, match="removed lately; max 30"):
        await transport.post_container(*place, at(30), {"M-new": "x"}, bounds)
    await transport.post_container(*place, at(31), {"M-0-0": "x", "Other": "y"}, bounds)
    assert (await transport.container_info(*place)).metadata == {"M-0-0": "x", "Other": "y"}


async def test_metadata_of_an_account_have_bounds_over_all_requests(cluster: ListingCluster) -> None:
    transport, place = cluster.transport, (cluster.devices[0], PART, "AUTH_m")
    bounds = MetadataBounds("M-", items=2, size_bytes=20)
    assert await transport.put_account(*place, at(1), {"M-A": "1"}, bounds)
    await transport.post_account(*place, at(2), {"M-B": "2"}, bounds)
    for attempt in (
        transport.post_account(*place, at(3), {"M-C": "3"}, bounds),
        transport.put_account(*place, at(4), {"M-C": "3"}, bounds),
    ):
        with pytest.raises(TooMuchMetadata):
            await attempt
    assert (await transport.account_info(*place)).metadata == {"M-A": "1", "M-B": "2"}


async def test_account_comes_with_its_first_container(cluster: ListingCluster) -> None:
    place = (cluster.devices[0], PART, "AUTH_new")
    await cluster.transport.update_containers(*place, [ContainerRow("c", at(4))])
    info = await cluster.transport.account_info(*place)
    assert (info.put_timestamp, info.container_count) == (at(4), 1)


async def test_many_at_once(container: Container) -> None:
    await container.put(1)
    await asyncio.gather(
        *(container.transport.update_rows(*container.place, [row(f"o{i:03}", 2, i)]) for i in range(200))
    )
    info = await container.transport.container_info(*container.place)
    assert (info.object_count, info.bytes_used) == (200, sum(range(200)))


async def test_no_such_node(cluster: ListingCluster) -> None:
    with pytest.raises(NodeUnreachable):
        await cluster.transport.container_info(device(9), PART, "AUTH_a", "c")
