"""Small objects of a policy with erasure coding: copies at the first places, through the API and by rounds of repairs.

Fault model: as many devices are away, or were replaced by empty ones, as there are parity fragments, in every pattern;
objects change from one form to the other meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.coded import CODED, CODING, CodedServers, coded_proxy
from swiftlet.api.tests.coded_repairs import Repairs
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_erasure_coding import body_of, etag_of
from swiftlet.boundaries.coded import CodedPlaces
from swiftlet.errors import NotFound
from swiftlet.model import ObjectKey
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, at, footer_of, record_of

MOST = 2000
"""Bytes up to which objects are small."""
SMALL, LARGE = (0, 1, MOST), (MOST + 1, 40_000)
PAIRS = list(itertools.combinations(range(CODING.fragments), CODING.parity))
Made = tuple[Proxy, CodedServers, Repairs]


@pytest.fixture
async def small(tmp_path: Directory) -> AsyncIterator[Made]:
    async with coded_proxy(tmp_path, through_front=True, pack_below=MOST) as (proxy, servers):
        yield proxy, servers, Repairs(servers, lambda: proxy.clock.now)


@pytest.fixture
async def spared(tmp_path: Directory) -> AsyncIterator[Made]:
    async with coded_proxy(tmp_path, devices=8, pack_below=MOST) as (proxy, servers):
        yield proxy, servers, Repairs(servers, lambda: proxy.clock.now)


def places_of(servers: CodedServers, name: str) -> CodedPlaces:
    """Return the places of an object."""
    digest = HASH_PATH.of(Path(ACCOUNT, "c", name))
    partition = servers.ring.partition_of(digest)
    key = ObjectKey(CODED, partition, digest)
    return CodedPlaces.in_ring(key, CODING, servers.ring)


def copies_of(servers: CodedServers, name: str) -> list[int]:
    """Return the numbers of the devices that have a copy."""
    found = []
    for number, store in enumerate(servers.stores):
        try:
            store.stat(places_of(servers, name).key_of_copies())
        except NotFound:
            continue
        found.append(number)
    return found


def holders_of(servers: CodedServers, name: str) -> list[int]:
    """Return the numbers of the devices that are to have a copy."""
    return sorted(device.id for device in places_of(servers, name).at[: CODING.holders])


async def put(proxy: Proxy, name: str, size: int, seed: int = 0) -> bytes:
    body = body_of(size + seed)[:size]
    stored = await proxy.call("PUT", f"c/{name}", {"X-Object-Meta-Size": str(size)}, body)
    assert (stored.status, stored.headers["Etag"]) == (201, etag_of(body)), stored.body
    return body


async def assert_read(proxy: Proxy, servers: CodedServers, bodies: dict[str, bytes]) -> None:
    """Assert that all are read with any two devices away."""
    for away in PAIRS:
        with servers.away(*away):
            for name, body in bodies.items():
                got = await proxy.call("GET", f"c/{name}")
                assert (got.status, got.body) == (200, body), (away, name, got.body[:200])


async def test_small_objects_are_copies_and_read_with_any_two_devices_away(small: Made) -> None:
    proxy, servers, _ = small
    bodies = {f"o{size}": await put(proxy, f"o{size}", size) for size in SMALL + LARGE}
    for size in SMALL:
        assert copies_of(servers, f"o{size}") == holders_of(servers, f"o{size}")
    for size in LARGE:
        assert copies_of(servers, f"o{size}") == []
    await assert_read(proxy, servers, bodies)
    name, body = f"o{MOST}", bodies[f"o{MOST}"]
    for away in PAIRS:
        with servers.away(*away):
            head = await proxy.call("HEAD", f"c/{name}")
            told = [head.headers[name] for name in ("Etag", "Content-Length", "X-Object-Meta-Size")]
            assert (head.status, told) == (200, [etag_of(body), str(MOST), str(MOST)])
            part = await proxy.call("GET", f"c/{name}", {"Range": "bytes=100-299"})
            assert (part.status, part.body) == (206, body[100:300]), away
            same = await proxy.call("GET", f"c/{name}", {"If-None-Match": etag_of(body)})
            assert same.status == 304
    listed = await proxy.call("GET", "c")
    assert set(listed.body.decode().split()) == set(bodies)


async def test_a_body_whose_size_is_not_known_is_small_when_it_turns_out_so(small: Made) -> None:
    proxy, servers, _ = small

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), 700):
            yield body[start : start + 700]

    for size in (0, MOST, MOST + 1, 30_000):
        body = body_of(size)
        stored = await proxy.call("PUT", f"c/s{size}", data=pieces(body))
        assert (stored.status, stored.headers["Etag"]) == (201, etag_of(body)), stored.body
        assert copies_of(servers, f"s{size}") == (holders_of(servers, f"s{size}") if size <= MOST else [])
        got = await proxy.call("GET", f"c/s{size}")
        assert (got.status, got.body) == (200, body)


async def test_objects_change_their_form_while_any_two_devices_are_away(spared: Made) -> None:
    proxy, servers, repairs = spared
    for number, away in enumerate(PAIRS):
        name = f"o{number}"
        # The numbers of devices are not those of places.
        gone = [places_of(servers, name).at[place].id for place in away]
        for turn, size in enumerate((30_000, 500, 20_000, 700)):
            with servers.away(*gone):
                body = await put(proxy, name, size, turn)
                got = await proxy.call("GET", f"c/{name}")
                assert (got.status, got.body) == (200, body), (away, size)
        proxy.clock.now += 60
        await servers.deliver_pending(proxy.cluster.rows)
        for _ in range(3):
            await repairs.round_of()
        assert copies_of(servers, name) == holders_of(servers, name), away
        await assert_read(proxy, servers, {name: body})
        assert (await proxy.call("DELETE", f"c/{name}")).status == 204
        assert (await proxy.call("GET", f"c/{name}")).status == 404
        assert (await proxy.call("DELETE", f"c/{name}")).status == 404


async def test_metadata_of_a_small_object_are_posted_to_its_copies(small: Made) -> None:
    proxy, servers, _ = small
    body = await put(proxy, "o", 500)
    posted = await proxy.call("POST", "c/o", {"X-Object-Meta-Size": "posted", "Content-Type": "text/posted"})
    assert posted.status == 202, posted.body
    for away in PAIRS:
        with servers.away(*away):
            got = await proxy.call("GET", "c/o")
            told = got.headers["X-Object-Meta-Size"], got.headers["Content-Type"]
            assert (got.status, got.body, told) == (200, body, ("posted", "text/posted")), away
    listed = await proxy.call("GET", "c?format=json")
    assert b'"text/posted"' in listed.body
    assert (await proxy.call("POST", "c/nothing", {"X-Object-Meta-A": "b"})).status == 404


async def test_copies_are_brought_where_they_are_missing_and_go_back(spared: Made) -> None:
    proxy, servers, repairs = spared
    bodies = {}
    for number in range(6):
        away = [places_of(servers, f"o{number}").at[place].id for place in (0, 2)]
        with servers.away(*away):
            bodies[f"o{number}"] = await put(proxy, f"o{number}", 300 + number)
        assert copies_of(servers, f"o{number}") != holders_of(servers, f"o{number}")
    await put(proxy, "gone", 400)
    away = [places_of(servers, "gone").at[0].id]
    with servers.away(*away):
        assert (await proxy.call("DELETE", "c/gone")).status == 204
    proxy.clock.now += 60
    # What stands in keeps its copy until its row is listed.
    await servers.deliver_pending(proxy.cluster.rows)
    first = await repairs.round_of()
    assert (first.copied > 0, first.failed) == (True, 0), first
    await repairs.round_of()
    for name in bodies:
        assert copies_of(servers, name) == holders_of(servers, name)
    assert copies_of(servers, "gone") == []
    last = await repairs.round_of()
    assert (last.clean, last.copied) == (True, 0), last
    await assert_read(proxy, servers, bodies)


async def test_replaced_devices_get_their_copies_from_the_others(small: Made) -> None:
    proxy, servers, repairs = small
    bodies = {f"o{number}": await put(proxy, f"o{number}", 300 + number) for number in range(8)}
    posted = await proxy.call("POST", "c/o1", {"X-Object-Meta-Size": "posted"})
    assert posted.status == 202
    for number in (1, 4):
        await servers.replace(number)
    proxy.clock.now += 60
    report = await repairs.round_of(1, 4)
    assert (report.copied > 0, report.failed) == (True, 0), report
    for name in bodies:
        assert copies_of(servers, name) == holders_of(servers, name)
    assert (await repairs.round_of()).clean
    await assert_read(proxy, servers, bodies)
    for device in places_of(servers, "o1").at[: CODING.holders]:
        info = servers.stores[device.id].stat(places_of(servers, "o1").key_of_copies())
        assert info.metadata["X-Object-Meta-Size"] == "posted"
    standing = repairs.standings.of(servers.ring.device(1).name, CODED)
    assert standing.synced_at_s is not None


async def test_what_is_missing_takes_the_word_of_those_with_copies(small: Made) -> None:
    proxy, servers, _ = small
    assert (await proxy.call("GET", "c/o")).status == 404
    holders = holders_of(servers, "o")
    for number in range(CODING.fragments):
        with servers.away(number):
            expected = 503 if number in holders else 404
            assert (await proxy.call("GET", "c/o")).status == expected


async def test_rows_that_devices_deliver_late_are_those_of_what_counts(small: Made) -> None:
    proxy, servers, _ = small
    cluster = proxy.cluster

    async def write(name: str, second: float, size: int) -> None:
        path, body = Path(ACCOUNT, "c", name), body_of(size)
        await cluster.objects.put(path, CODED, record_of(path, at(second)), body, footer_of(body))

    with cluster.databases_down(*cluster.container_devices()):
        await write("small", 5, 30_000)
        await write("small", 6, 100)
        await write("large", 5, 100)
        await write("large", 6, 30_000)
        await write("deleted", 5, 100)
        await cluster.objects.delete(Path(ACCOUNT, "c", "deleted"), CODED, at(6))
    assert servers.pending() > 0
    async with asyncio.timeout(20):
        while servers.pending():  # A device may have answered last.
            await servers.deliver_pending(cluster.rows)
    listed = json.loads((await proxy.call("GET", "c?format=json")).body)
    assert [(row["name"], row["bytes"]) for row in listed] == [("large", 30_000), ("small", 100)]
