"""Small objects of a policy with erasure coding that were packed: through the API, they are objects like all others.

Fault model: as many devices are away as there are parity fragments, in every pattern; objects change while they are in
a pack.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.coded import CODED, CODING, CodedServers, coded_proxy
from swiftlet.api.tests.coded_repairs import Repairs
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_erasure_coding import body_of, etag_of
from swiftlet.api.tests.test_small_objects import MOST, PAIRS, assert_read, copies_of, holders_of, places_of, put
from swiftlet.boundaries.coded import CodedPlaces, Packed, PackTerms
from swiftlet.errors import NotFound, StoreFormatError
from swiftlet.model import ObjectKey, PostRecord
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, at, footer_of, record_of
from swiftlet.transport.native_coded_packs import NativeCodedPacker

Made = tuple[Proxy, CodedServers]


@pytest.fixture
async def small(tmp_path: Directory) -> AsyncIterator[Made]:
    async with coded_proxy(tmp_path, through_front=True, pack_below=MOST) as made:
        yield made


async def pack_all(proxy: Proxy, servers: CodedServers) -> Packed:
    """Have a packer do a round in all partitions; return what was done."""
    # A copy whose row is pending stays one.
    await servers.deliver_pending(proxy.cluster.rows)
    proxy.clock.now += 60
    packer, now = NativeCodedPacker(servers.coded), at(proxy.clock.now)
    total = Packed()
    for partition in range(servers.ring.partition_count):
        places = CodedPlaces.in_ring(ObjectKey(CODED, partition, bytes(16)), CODING, servers.ring)
        done = await packer.pack(places, PackTerms(now, 1, 64 << 20), now)
        assert done.stopped is None
        total = Packed(
            total.members + done.members,
            total.size + done.size,
            total.finished + done.finished,
            total.retired + done.retired,
        )
    return total


def packed_at(servers: CodedServers, name: str) -> list[int]:
    """Return the numbers of the devices that have a reference to an object."""
    found = []
    for number in holders_of(servers, name):
        try:
            servers.stores[number].stat(places_of(servers, name).key_of_copies())
        except NotFound:
            continue
        except StoreFormatError:
            found.append(number)
    return found


async def test_packed_objects_are_read_with_any_two_devices_away(small: Made) -> None:
    proxy, servers = small
    bodies = {f"o{size}": await put(proxy, f"o{size}", size) for size in (0, 1, 700, 1500, MOST)}
    bodies["large"] = await put(proxy, "large", 40_000)
    done = await pack_all(proxy, servers)
    assert (done.members, done.finished, done.retired) == (5, 0, 0)
    for name in bodies:
        assert packed_at(servers, name) == ([] if name == "large" else holders_of(servers, name))
    await assert_read(proxy, servers, bodies)
    name, body = "o1500", bodies["o1500"]
    for away in PAIRS:
        with servers.away(*away):
            head = await proxy.call("HEAD", f"c/{name}")
            told = [head.headers[name] for name in ("Etag", "Content-Length", "X-Object-Meta-Size")]
            assert (head.status, told) == (200, [etag_of(body), "1500", "1500"])
            part = await proxy.call("GET", f"c/{name}", {"Range": "bytes=100-299"})
            assert (part.status, part.body) == (206, body[100:300]), away
            last = await proxy.call("GET", f"c/{name}", {"Range": "bytes=-7"})
            assert (last.status, last.body) == (206, body[-7:]), away
            same = await proxy.call("GET", f"c/{name}", {"If-None-Match": etag_of(body)})
            assert same.status == 304
    beyond = await proxy.call("GET", f"c/{name}", {"Range": "bytes=1500-"})
    assert beyond.status == 416
    assert (await pack_all(proxy, servers)).members == 0
    listed = await proxy.call("GET", "c")
    assert set(listed.body.decode().split()) == set(bodies)


async def test_packed_objects_are_posted_to_overwritten_and_deleted(small: Made) -> None:
    proxy, servers = small
    names = ("posted", "small", "large", "gone", "copied")
    bodies = {name: await put(proxy, name, 500, seed) for seed, name in enumerate(names)}
    assert (await pack_all(proxy, servers)).members == len(names)
    posted = await proxy.call("POST", "c/posted", {"X-Object-Meta-Size": "posted", "Content-Type": "text/posted"})
    assert posted.status == 202, posted.body
    bodies["small"] = await put(proxy, "small", 600)
    bodies["large"] = await put(proxy, "large", 30_000)
    assert (await proxy.call("DELETE", "c/gone")).status == 204
    copied = await proxy.call("PUT", "c/copy", {"X-Copy-From": "/c/copied"})
    assert copied.status == 201, copied.body
    del bodies["gone"]
    bodies["copy"] = bodies["copied"]
    for _ in range(2):
        await assert_read(proxy, servers, bodies)
        for away in PAIRS:
            with servers.away(*away):
                got = await proxy.call("GET", "c/posted")
                told = got.headers["X-Object-Meta-Size"], got.headers["Content-Type"]
                assert (got.status, told) == (200, ("posted", "text/posted")), away
        assert (await proxy.call("GET", "c/gone")).status == 404
        assert packed_at(servers, "posted") == holders_of(servers, "posted")
        # What has come since is packed as well; the second time around all small objects are in packs.
        assert (await pack_all(proxy, servers)).members in (2, 0)
    assert (await proxy.call("DELETE", "c/gone")).status == 404
    listed = await proxy.call("GET", "c?format=json")
    assert b'"text/posted"' in listed.body


async def test_metadata_from_before_and_after_packing_are_kept(small: Made) -> None:
    proxy, servers = small
    body = await put(proxy, "o", 500)
    assert (await proxy.call("POST", "c/o", {"X-Object-Meta-First": "1"})).status == 202
    assert (await pack_all(proxy, servers)).members == 1
    head = await proxy.call("HEAD", "c/o")
    assert (head.status, head.headers["X-Object-Meta-First"]) == (200, "1")
    assert (await proxy.call("POST", "c/o", {"X-Object-Meta-Second": "2"})).status == 202
    for away in PAIRS:
        with servers.away(*away):
            got = await proxy.call("GET", "c/o")
            assert (got.status, got.body, got.headers["X-Object-Meta-Second"]) == (200, body, "2"), away
            assert "X-Object-Meta-First" not in got.headers


async def test_devices_list_what_was_posted_to_packed_objects_when_no_proxy_has(small: Made) -> None:
    proxy, servers = small
    cluster = proxy.cluster
    for number, name in enumerate(("posted", "deleted", "large", "small")):
        await put(proxy, name, 500 + number)
    assert (await pack_all(proxy, servers)).members == 4
    path, now = Path(ACCOUNT, "c", "posted"), proxy.clock.now
    with cluster.databases_down(*cluster.container_devices()):
        record = PostRecord(at(now), {"X-Object-Meta-Size": "posted"}, "text/posted", at(now))
        await cluster.objects.post(path, CODED, record)
        for size, name in ((600, "small"), (30_000, "large")):
            body = body_of(size)
            written = Path(ACCOUNT, "c", name)
            await cluster.objects.put(written, CODED, record_of(written, at(now)), body, footer_of(body))
        await cluster.objects.delete(Path(ACCOUNT, "c", "deleted"), CODED, at(now))
    assert packed_at(servers, "posted") == holders_of(servers, "posted")
    pending = servers.pending()
    assert pending > 0
    away = [device.id for device in places_of(servers, "posted").at[: CODING.parity + 1]]
    with servers.away(*away):
        # Too few devices answer to whoever asks, so that it stays pending; nobody else is held up.
        while servers.pending() > CODING.holders:
            await servers.deliver_pending(cluster.rows)
    assert servers.pending() == CODING.holders
    with servers.away(*away[1:]):
        async with asyncio.timeout(20):
            while servers.pending():
                await servers.deliver_pending(cluster.rows)
    listed = json.loads((await proxy.call("GET", "c?format=json")).body)
    told = [(row["name"], row["bytes"], row["content_type"]) for row in listed]
    assert told == [
        ("large", 30_000, "text/plain"),
        ("posted", 500, "text/posted"),
        ("small", 600, "text/plain"),
    ]
    assert listed[1]["hash"] == etag_of(body_of(500)[:500])


@pytest.fixture
async def repaired(tmp_path: Directory) -> AsyncIterator[tuple[Proxy, CodedServers, Repairs]]:
    async with coded_proxy(tmp_path, devices=8, pack_below=MOST) as (proxy, servers):
        yield proxy, servers, Repairs(servers, lambda: proxy.clock.now)


async def test_a_replaced_device_gets_packs_first_and_then_references(
    repaired: tuple[Proxy, CodedServers, Repairs],
) -> None:
    proxy, servers, repairs = repaired
    bodies = {f"o{number}": await put(proxy, f"o{number}", 300 + number) for number in range(12)}
    bodies["large"] = await put(proxy, "large", 40_000)
    assert (await pack_all(proxy, servers)).members == 12
    assert (await proxy.call("POST", "c/o1", {"X-Object-Meta-Size": "posted"})).status == 202
    bodies["copy"] = await put(proxy, "copy", 450)
    proxy.clock.now += 60
    await servers.deliver_pending(proxy.cluster.rows)
    for number in (1, 4):
        await servers.replace(number)
    for _ in range(4):
        report = await repairs.round_of()
        assert report.failed == 0, report
    assert report.clean, report
    for name in bodies:
        assert packed_at(servers, name) == ([] if name in ("large", "copy") else holders_of(servers, name)), name
    assert copies_of(servers, "copy") == holders_of(servers, "copy")
    # Two others are lost afterwards: what was brought is enough.
    await assert_read(proxy, servers, bodies)
    for away in PAIRS:
        with servers.away(*away):
            head = await proxy.call("HEAD", "c/o1")
            assert (head.status, head.headers["X-Object-Meta-Size"]) == (200, "posted"), away


async def test_what_a_place_has_missed_of_packed_objects_is_brought(
    repaired: tuple[Proxy, CodedServers, Repairs],
) -> None:
    proxy, servers, repairs = repaired
    names = "posted", "gone", "written"
    bodies = {name: await put(proxy, name, 400) for name in names}
    assert (await pack_all(proxy, servers)).members == 3
    for name in names:
        with servers.away(places_of(servers, name).at[1].id):
            if name == "posted":
                assert (await proxy.call("POST", "c/posted", {"X-Object-Meta-Size": "new"})).status == 202
            elif name == "gone":
                assert (await proxy.call("DELETE", "c/gone")).status == 204
            else:
                bodies[name] = await put(proxy, name, 900)
    del bodies["gone"]
    proxy.clock.now += 60
    await servers.deliver_pending(proxy.cluster.rows)
    for _ in range(3):
        report = await repairs.round_of()
        assert report.failed == 0, report
    assert report.clean, report
    assert packed_at(servers, "posted") == holders_of(servers, "posted")
    assert packed_at(servers, "gone") == packed_at(servers, "written") == []
    assert copies_of(servers, "written") == holders_of(servers, "written")
    await assert_read(proxy, servers, bodies)
    missed = places_of(servers, "posted")
    with servers.away(missed.at[0].id, missed.at[2].id):
        head = await proxy.call("HEAD", "c/posted")
        assert (head.status, head.headers["X-Object-Meta-Size"]) == (200, "new")


async def test_without_enough_bytes_nothing_is_packed(small: Made) -> None:
    proxy, servers = small
    await put(proxy, "o", 500)
    await servers.deliver_pending(proxy.cluster.rows)
    proxy.clock.now += 60
    packer, places, now = NativeCodedPacker(servers.coded), places_of(servers, "o"), at(proxy.clock.now)
    assert await packer.pack(places, PackTerms(now, 10_000, 64 << 20), now) == Packed(looked_at_all=True)
    assert await packer.pack(places, PackTerms(at(1), 1, 64 << 20), now) == Packed(looked_at_all=True)
    assert (await packer.pack(places, PackTerms(now, 1, 64 << 20), now)).members == 1
    assert body_of(500)[:500] == (await proxy.call("GET", "c/o")).body
