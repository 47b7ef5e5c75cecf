"""Objects with erasure coding that the front puts together: the same answers as Python's, whatever becomes of as many
devices as there is parity, and never a wrong byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.coded import CODED, CodedCluster, CodedServers, coded_cluster
from swiftlet.boundaries.coded import CodedPlaces
from swiftlet.front.tests.conftest import FrontedProxy, fronted_proxy, until
from swiftlet.front.tests.served import Relay
from swiftlet.front.tests.test_hedging import hedged
from swiftlet.front.tests.test_long_reads import MIB, Client, counted
from swiftlet.front.tests.test_reads import by_front, by_python
from swiftlet.main.certificates import Certificates
from swiftlet.model import ObjectKey
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH
from swiftlet.ring.model import Coding, Device

CODING = Coding(4, 2, 64 * 1024)
CELL, STRIPE = CODING.cell_bytes, CODING.data * CODING.cell_bytes
PACKED = 5000
"""The size of the largest object that is kept as copies, where any are."""
LONG = 24 * MIB + 4097
"""More than kernels and windows hold of an answer on its way."""
WINDOW = 2 * MIB
"""What is asked for at once."""


@functools.cache
def body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


async def put(fronted: FrontedProxy, name: str, data: bytes, **headers: str) -> None:
    given = {"Content-Type": "a/b", "X-Object-Meta-A": "b"} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    assert (await fronted.proxy.call("PUT", f"c/{name}", given, io.BytesIO(data), query="x=y")).status == 201


Fronted = tuple[FrontedProxy, CodedServers]


@asynccontextmanager
async def fronted_by(
    made: CodedCluster, root: Directory, certificate: Certificates | None = None, client_timeout_s: float = 10.0
) -> AsyncIterator[FrontedProxy]:
    """A proxy whose front knows the container, which has an object with the name `heating`."""
    async with fronted_proxy(
        made.cluster,
        root,
        certificate=certificate,
        client_timeout_s=client_timeout_s,
        coded=made.coded,
        policies=made.policies,
    ) as fronted:
        await put(fronted, "heating", b"")
        await by_front(fronted, "GET", "c/heating")
        yield fronted


@pytest.fixture
async def coded(tmp_path: Directory, certificate: Certificates | None) -> AsyncIterator[Fronted]:
    async with coded_cluster(tmp_path, coding=CODING) as made, fronted_by(made, tmp_path, certificate) as fronted:
        yield fronted, made.servers


@pytest.fixture
async def plain(tmp_path: Directory) -> AsyncIterator[Fronted]:
    """Without TLS."""
    async with coded_cluster(tmp_path, coding=CODING) as made, fronted_by(made, tmp_path) as fronted:
        yield fronted, made.servers


def lines_for(size: int) -> Sequence[str]:
    """Ranges around each limit, and conditions."""
    limits = {0, 1, CELL - 1, CELL, STRIPE - 1, STRIPE, WINDOW - 1, WINDOW, size // 2, size - 1}
    edges = sorted(edge for edge in limits if 0 <= edge < size)
    between = [(first, last) for first, last in itertools.combinations(edges, 2) if first in (0, CELL, STRIPE - 1)]
    return [
        "Accept: */*",
        "If-None-Match: x",
        "If-None-Match: *",
        "If-Match: x",
        "If-Match: *",
        *(f"Range: bytes={first}-{last}" for first, last in between),
        *(f"Range: bytes={edge}-" for edge in edges),
        *(f"Range: bytes=-{edge}" for edge in edges),
        f"Range: bytes={size}-",
        f"Range: bytes=0-{size + 7}",
        f"Range: bytes=-{size + 7}",
        "Range: bytes=0-0\r\nIf-Range: x",
        f"Range: bytes=1-{size + 7}\r\nIf-None-Match: x",
    ]


SIZES = [0, 1, CELL - 1, CELL, CELL + 1, STRIPE, MIB, MIB + 1, WINDOW + STRIPE + 1, 5 * MIB + 3]


async def test_like_pythons(coded: Fronted) -> None:
    """Of objects of any size and of parts of them, byte for byte."""
    fronted, _ = coded
    for size in SIZES:
        await put(fronted, "o", body(size), Content_Disposition="inline")
        for line in lines_for(size):
            found = await by_front(fronted, "GET", "c/o", line)
            assert found == await by_python(fronted, "GET", "c/o", line), (size, line)
        for line in ("Accept: */*", "If-None-Match: *", "If-Match: x", "Range: bytes=0-0"):
            found = await by_front(fronted, "HEAD", "c/o", line)
            assert found == await by_python(fronted, "HEAD", "c/o", line), (size, line)
        assert (await by_front(fronted, "GET", "c/o"))[1].endswith(b"\r\n\r\n" + body(size))


async def test_small_objects_that_are_copies(tmp_path: Directory) -> None:
    """Those in packs are read in the same way: who puts objects together knows no difference."""
    async with (
        coded_cluster(tmp_path, coding=CODING, pack_below=PACKED) as made,
        fronted_by(made, tmp_path) as fronted,
    ):
        for size in (0, 1, PACKED, PACKED + 1, STRIPE + 1):
            await put(fronted, "o", body(size))
            for line in ("Accept: */*", "Range: bytes=1-", "Range: bytes=-9", "If-None-Match: x", "If-None-Match: *"):
                found = await by_front(fronted, "GET", "c/o", line)
                assert found == await by_python(fronted, "GET", "c/o", line), (size, line)
        assert (await fronted.proxy.call("POST", "c/o", {"X-Object-Meta-A": "c"})).status == 202
        assert b"X-Object-Meta-A: c" in (await by_front(fronted, "HEAD", "c/o"))[1]


async def test_what_is_pythons(coded: Fronted) -> None:
    """Several ranges, what is not there, manifests, and objects that have gone."""
    fronted, _ = coded
    await put(fronted, "o", body(STRIPE + 1))
    await put(fronted, "segment", body(MIB + 5))
    await put(fronted, "large", b"", X_Object_Manifest="c/segment")
    for name, line, status in (
        ("o", "Range: bytes=0-1,70000-70001", 206),
        ("missing", "Accept: */*", 404),
        ("large", "Accept: */*", 200),
    ):
        before = fronted.answered
        found = await by_python(fronted, "GET", f"c/{name}", line)
        answer = await fronted.proxy.call("GET", f"c/{name}", dict([line.split(": ")]))
        assert (found[0], answer.status) == (status, status), name
        assert fronted.answered == before, name
    assert (await fronted.proxy.call("GET", "c/large")).body == body(MIB + 5)
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 204
    assert (await fronted.proxy.call("GET", "c/o")).status == 404


async def told(fronted: FrontedProxy) -> None:
    """Return when the front knows which devices can be found."""
    routes = fronted.running.coded
    assert routes is not None
    # What is being looked up may have begun before.
    for _ in range(2):
        routes.refresh()
        await routes.found()


async def test_every_pattern_of_devices_away(plain: Fronted) -> None:
    """Whoever the two are; with three away Python says that it is too few."""
    fronted, servers = plain
    size = 2 * WINDOW + STRIPE + 1
    await put(fronted, "o", body(size))
    for pattern in itertools.combinations(range(CODING.fragments), CODING.parity):
        with servers.away(*pattern):
            await told(fronted)
            assert (await by_front(fronted, "GET", "c/o"))[1].endswith(b"\r\n\r\n" + body(size)), pattern
            part = await by_front(fronted, "GET", "c/o", f"Range: bytes={CELL - 1}-{WINDOW + 1}")
            assert part[1].endswith(b"\r\n\r\n" + body(size)[CELL - 1 : WINDOW + 2]), pattern
    with servers.away(0, 1, 2):
        await told(fronted)
        before = fronted.answered
        got = await fronted.proxy.call("GET", "c/o")
        assert got.status == 503
        assert b"4 of its 6 fragments are needed" in got.body
        assert fronted.answered == before
    await told(fronted)
    assert (await by_front(fronted, "GET", "c/o"))[1].endswith(body(size))


def places_of(servers: CodedServers, name: str) -> CodedPlaces:
    """Where the fragments of an object are."""
    digest = HASH_PATH.of(Path(ACCOUNT, CONTAINER, name))
    key = ObjectKey(CODED, servers.ring.partition_of(digest), digest)
    return CodedPlaces.in_ring(key, CODING, servers.ring)


def long_files(directory: Directory) -> list[Directory]:
    """Files with fragments of the long object."""
    return [
        file for file in directory.rglob("large/**/*") if file.is_file() and file.stat().st_size >= LONG // CODING.data
    ]


async def damage(root: Directory, device: Device, into: int) -> None:
    """Flip a bit of a fragment in a file of its own, which may come late."""
    await until(lambda: len(long_files(root / f"coded-{device.id}")) == 1)
    [file] = long_files(root / f"coded-{device.id}")
    with file.open("r+b") as opened:
        opened.seek(into)
        [byte] = opened.read(1)
        opened.seek(into)
        opened.write(bytes([byte ^ 0x10]))


async def test_damaged_fragments(plain: Fronted, tmp_path: Directory) -> None:
    """Wrong cells are replaced by others, and nobody gets a byte of them."""
    fronted, servers = plain
    for store in servers.stores:
        store.set_aggregate_below({CODED: 1000})
    await put(fronted, "long", body(LONG))
    at = places_of(servers, "long").at
    for place, into in ((0, 3 * MIB), (2, 5 * MIB)):
        await damage(tmp_path, at[place], into)
    for _ in range(3):
        assert (await by_front(fronted, "GET", "c/long"))[1].endswith(b"\r\n\r\n" + body(LONG))
        found = await by_front(fronted, "GET", "c/long", f"Range: bytes=7-{LONG - 9}")
        assert found[1].endswith(b"\r\n\r\n" + body(LONG)[7:-8])


async def test_more_damage_than_parity(plain: Fronted, tmp_path: Directory) -> None:
    """What was sent before is right, and the client is not told that it has all."""
    fronted, servers = plain
    for store in servers.stores:
        store.set_aggregate_below({CODED: 1000})
    await put(fronted, "long", body(LONG))
    at = places_of(servers, "long").at
    for place in range(CODING.parity + 1):
        await damage(tmp_path, at[place], 4 * MIB)
    begun, before = counted(503), fronted.answered
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.rest()
    assert 0 < len(found) < LONG
    assert body(LONG).startswith(found)
    await until(lambda: fronted.answered > before)
    assert counted(503) == begun + 1


@asynccontextmanager
async def relayed(servers: CodedServers) -> AsyncIterator[list[Relay]]:
    """Relays before all devices, by the devices' numbers."""
    async with contextlib.AsyncExitStack() as stack:
        relays = []
        for device in servers.ring.devices:
            assert device is not None
            relays.append(await stack.enter_async_context(Relay.open(servers, device)))
        yield relays


@pytest.fixture
async def through_relays(plain: Fronted) -> AsyncIterator[tuple[FrontedProxy, CodedServers, list[Relay]]]:
    """A proxy whose devices can be cut off, with a long object."""
    fronted, servers = plain
    async with relayed(servers) as relays:
        await put(fronted, "long", body(LONG))
        await told(fronted)
        yield fronted, servers, relays


@pytest.mark.parametrize("is_silent", [False, True])
async def test_devices_that_go_away_are_replaced(
    through_relays: tuple[FrontedProxy, CodedServers, list[Relay]], is_silent: bool
) -> None:
    """In the middle, one after the other; the client gets the right bytes."""
    fronted, servers, relays = through_relays
    at = places_of(servers, "long").at
    before, hedged_before = fronted.answered, hedged()
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.take(MIB)
        for place in (0, 3):
            relay = relays[at[place].id]
            if is_silent:
                relay.mute()
            else:
                relay.cut()
            found += await client.take(8 * MIB)
        found += await client.take(LONG - len(found))
        assert found == body(LONG)
    await until(lambda: fronted.answered > before)
    if is_silent:
        assert hedged() > hedged_before


async def test_too_few_devices_are_left(through_relays: tuple[FrontedProxy, CodedServers, list[Relay]]) -> None:
    """The client is not told that it has all."""
    fronted, servers, relays = through_relays
    begun, before = counted(503), fronted.answered
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.take(MIB)
        for place in range(CODING.parity + 1):
            relays[places_of(servers, "long").at[place].id].cut()
        found += await client.rest()
        assert len(found) < LONG
        assert body(LONG).startswith(found)
    await until(lambda: fronted.answered > before)
    assert counted(503) == begun + 1


async def test_an_object_is_replaced_while_it_is_read(coded: Fronted) -> None:
    """What the client gets is of one version, and if that can't be had any more the connection ends."""
    fronted, _ = coded
    await put(fronted, "long", body(LONG))
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.take(MIB)
        fronted.proxy.clock.now += 1
        await put(fronted, "long", b"short")
        try:
            found += await client.take(LONG - MIB)
        except asyncio.IncompleteReadError as ended:
            found += ended.partial
        assert body(LONG).startswith(found)
    assert (await by_front(fronted, "GET", "c/long"))[1].endswith(b"short")


async def test_slow_clients_hold_little(coded: Fronted) -> None:
    """After a moment nothing of the transport's memory; those that find no room get all bytes from Python."""
    fronted, servers = coded
    await put(fronted, "long", body(LONG))
    free, before = servers.spare(), fronted.answered
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client.asking(fronted, "long")) for _ in range(3)]
        for client in clients:
            assert await client.head() == 200
        await until(lambda: servers.spare() == free)
        # A short answer has room beside.
        await put(fronted, "short", body(CELL))
        assert (await by_front(fronted, "GET", "c/short"))[1].endswith(body(CELL))
        for client in clients:
            assert await client.take(LONG) == body(LONG)
    await until(lambda: fronted.answered >= before + 2)
    assert servers.spare() == free
    await by_front(fronted, "GET", "c/long")


async def test_one_behind_the_other(coded: Fronted) -> None:
    """On one connection, asked for at once."""
    fronted, _ = coded
    await put(fronted, "long", body(LONG))
    await put(fronted, "short", b"short")
    before = fronted.answered
    async with Client.asking(fronted, "long", "short", "long", "short") as client:
        for name in ("long", "short", "long", "short"):
            assert await client.head() == 200
            expected = body(LONG) if name == "long" else b"short"
            assert await client.take(len(expected)) == expected
    await until(lambda: fronted.answered == before + 4)


def _has_answered_more(fronted: FrontedProxy, before: int) -> bool:
    return fronted.answered > before


async def test_clients_that_go_away(coded: Fronted) -> None:
    """Nothing of their answers stays, and they are logged."""
    fronted, servers = coded
    await put(fronted, "long", body(LONG))
    free, begun = servers.spare(), counted(499)
    for gone in range(1, 4):
        await by_front(fronted, "GET", "c/heating")
        before = fronted.answered
        async with Client.asking(fronted, "long") as client:
            await client.take(MIB)
        await until(functools.partial(_has_answered_more, fronted, before))
        assert counted(499) == begun + gone
    await until(lambda: servers.spare() == free)
    await by_front(fronted, "GET", "c/long")


async def test_clients_that_take_nothing(tmp_path: Directory) -> None:
    """Their connections end after a while, however much of the answer is left."""
    async with (
        coded_cluster(tmp_path, coding=CODING) as made,
        fronted_by(made, tmp_path, client_timeout_s=0.6) as fronted,
    ):
        await put(fronted, "long", body(LONG))
        begun, before = counted(408), fronted.answered
        async with Client.asking(fronted, "long") as client:
            assert await client.head() == 200
            found = await client.take(MIB)
            await until(lambda: fronted.answered > before)
            found += await client.rest()
            assert len(found) < LONG
        assert counted(408) == begun + 1
        await by_front(fronted, "GET", "c/long")
