"""Objects of a policy with erasure coding through the API: written, read, and refused with the reason.

Fault model: as many devices are away as there are parity fragments, in every pattern; with one more nothing wrong is
served. Servers that know another coding take nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest
from aiohttp import ClientError

from swiftlet.api.tests.coded import CODED, CODING, STRIPE, CodedServers, coded_proxy
from swiftlet.api.tests.proxy import SMALL, Proxy
from swiftlet.boundaries.coded import CodedPlaces
from swiftlet.expiry.expirer import Expirer
from swiftlet.expiry.tests.support import queue_of
from swiftlet.model import ObjectKey
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, at, footer_of, record_of
from swiftlet.ring.model import Coding
from swiftlet.settings.expirer import ExpirerSection

DEVICES = range(CODING.fragments)
SIZES = (0, 1, SMALL, CODING.cell_bytes, STRIPE - 1, STRIPE, 3 * STRIPE + 1700, 300_000)
Coded = tuple[Proxy, CodedServers]


@pytest.fixture
async def coded(tmp_path: Directory) -> AsyncIterator[Coded]:
    """Through the front, which reads what Python reads once more."""
    async with coded_proxy(tmp_path, through_front=True) as made:
        yield made


def body_of(size: int) -> bytes:
    """Return bytes that differ everywhere."""
    return random.Random(size).randbytes(size)


def etag_of(body: bytes) -> str:
    """Return a body's MD5."""
    return hashlib.md5(body).hexdigest()


async def test_objects_of_all_sizes_are_read_as_they_were_written(coded: Coded) -> None:
    proxy, _ = coded
    for size in SIZES:
        body = body_of(size)
        headers = {"Content-Type": "text/x-size", "X-Object-Meta-Size": str(size)}
        put = await proxy.call("PUT", f"c/o{size}", headers, body)
        assert (put.status, put.headers["Etag"]) == (201, etag_of(body)), put.body
        for method in ("GET", "HEAD"):
            got = await proxy.call(method, f"c/o{size}")
            told = [got.headers[name] for name in ("Etag", "Content-Type", "X-Object-Meta-Size", "Content-Length")]
            assert got.status == 200, got.body
            assert told == [etag_of(body), "text/x-size", str(size), str(size)]
            assert got.body == (body if method == "GET" else b"")
    listed = await proxy.call("GET", "c")
    assert set(listed.body.decode().split()) == {f"o{size}" for size in SIZES}


async def test_spares_stand_in_for_devices_that_have_answered_a_moment_ago(tmp_path: Directory) -> None:
    """Nobody asks these whether they are still there, and too few devices are left without spares."""
    async with coded_proxy(tmp_path, devices=CODING.fragments + CODING.parity) as (proxy, servers):
        digest = HASH_PATH.of(Path(ACCOUNT, "c", "o"))
        key = ObjectKey(CODED, servers.ring.partition_of(digest), digest)
        assert (await proxy.call("PUT", "c/o", data=body_of(9000))).status == 201
        for device in CodedPlaces.in_ring(key, CODING, servers.ring).at[: CODING.parity]:
            await asyncio.to_thread(servers.servers[device.id].stop)
        proxy.clock.now += 1
        put = await proxy.call("PUT", "c/o", data=body_of(SMALL))
        assert put.status == 201, put.body
        assert (await proxy.call("GET", "c/o")).body == body_of(SMALL)


async def test_a_newer_version_takes_the_place_of_an_older_one(coded: Coded) -> None:
    proxy, _ = coded
    for size in (9000, 10, 70_000):
        proxy.clock.now += 1
        assert (await proxy.call("PUT", "c/o", data=body_of(size))).status == 201
        assert (await proxy.call("GET", "c/o")).body == body_of(size)


async def test_ranges_and_conditions_are_as_of_other_objects(coded: Coded) -> None:
    proxy, _ = coded
    body = body_of(3 * STRIPE + 1700)
    assert (await proxy.call("PUT", "c/o", data=body)).status == 201
    edges = (0, 1, CODING.cell_bytes - 1, CODING.cell_bytes, STRIPE - 1, STRIPE, 3 * STRIPE, len(body) - 1)
    for first, last in itertools.combinations(edges, 2):
        got = await proxy.call("GET", "c/o", {"Range": f"bytes={first}-{last}"})
        assert (got.status, got.body) == (206, body[first : last + 1])
    several = await proxy.call("GET", "c/o", {"Range": "bytes=0-9,5000-5009"})
    assert several.status == 206
    assert body[:10] in several.body
    assert body[5000:5010] in several.body
    assert (await proxy.call("GET", "c/o", {"Range": "bytes=-5"})).body == body[-5:]
    assert (await proxy.call("GET", "c/o", {"Range": f"bytes={len(body)}-"})).status == 416
    etag = f'"{etag_of(body)}"'
    assert (await proxy.call("GET", "c/o", {"If-None-Match": etag})).status == 304
    assert (await proxy.call("GET", "c/o", {"If-Match": '"other"'})).status == 412
    assert (await proxy.call("PUT", "c/o", {"If-None-Match": "*"}, data=b"x")).status == 412
    assert (await proxy.call("PUT", "c/other", {"Etag": "0" * 32}, data=body)).status == 422
    missing = await proxy.call("GET", "c/other")
    assert missing.status == 404


async def test_coded_objects_are_copied_to_other_policies_and_back(coded: Coded) -> None:
    proxy, _ = coded
    body = body_of(20_000)
    assert (await proxy.call("PUT", "c/o", data=body)).status == 201
    await proxy.cluster.make_container("plain")
    for target, source in (("plain/o", "/c/o"), ("c/back", "/plain/o"), ("c/again", "/c/back")):
        copied = await proxy.call("PUT", target, {"X-Copy-From": source, "Content-Length": "0"})
        assert copied.status == 201, copied.body
        got = await proxy.call("GET", target)
        assert (got.body, got.headers["Etag"]) == (body, etag_of(body))


async def test_segments_of_large_objects_may_be_coded(coded: Coded) -> None:
    proxy, _ = coded
    parts = [body_of(5000), body_of(9000), body_of(300)]
    for number, part in enumerate(parts):
        assert (await proxy.call("PUT", f"c/s/{number}", data=part)).status == 201
    assert (await proxy.call("PUT", "c/large", {"X-Object-Manifest": "c/s/"}, data=b"")).status == 201
    got = await proxy.call("GET", "c/large")
    assert (got.status, got.body) == (200, b"".join(parts))


async def test_every_pattern_of_two_devices_away_is_read(coded: Coded) -> None:
    proxy, servers = coded
    body = body_of(3 * STRIPE + 1700)
    assert (await proxy.call("PUT", "c/o", data=body)).status == 201
    for pattern in itertools.combinations(DEVICES, 2):
        with servers.away(*pattern):
            got = await proxy.call("GET", "c/o")
            assert (got.status, got.body) == (200, body), pattern
            part = await proxy.call("GET", "c/o", {"Range": "bytes=900-5000"})
            assert (part.status, part.body) == (206, body[900:5001]), pattern


async def test_three_devices_away_are_refused_with_the_reason(coded: Coded) -> None:
    proxy, servers = coded
    assert (await proxy.call("PUT", "c/o", data=body_of(9000))).status == 201
    for pattern in itertools.combinations(DEVICES, 3):
        with servers.away(*pattern):
            got = await proxy.call("GET", "c/o")
        assert got.status == 503, pattern
        assert b"4 of its 6 fragments are needed" in got.body
    with servers.away(0, 1, 2):
        put = await proxy.call("PUT", "c/new", data=body_of(9000))
    assert put.status == 503
    assert b"it is not stored" in put.body
    assert (await proxy.call("GET", "c/o")).body == body_of(9000)
    assert (await proxy.call("GET", "c/new")).status == 404


async def test_a_write_goes_on_with_one_device_away_and_with_servers_that_end(coded: Coded) -> None:
    proxy, servers = coded
    with servers.away(3):
        assert (await proxy.call("PUT", "c/o", data=body_of(20_000))).status == 201
    assert (await proxy.call("GET", "c/o")).body == body_of(20_000)
    await asyncio.to_thread(servers.servers[1].stop)
    assert (await proxy.call("PUT", "c/p", data=body_of(30_000))).status == 201
    assert (await proxy.call("GET", "c/p")).body == body_of(30_000)


async def test_servers_with_another_coding_take_nothing(coded: Coded) -> None:
    proxy, servers = coded
    for coding in (Coding(5, 1, CODING.cell_bytes), Coding(4, 2, 2048), None):
        for server in servers.servers:
            servers.know(server, coding)
        put = await proxy.call("PUT", "c/o", data=body_of(5000))
        assert put.status == 503
        assert b"the same `coding`" in put.body, put.body
    assert (await proxy.call("GET", "c/o")).status == 404


async def test_an_upload_that_breaks_off_leaves_nothing(coded: Coded) -> None:
    proxy, _ = coded

    async def broken() -> AsyncIterator[bytes]:
        yield body_of(50_000)
        raise ConnectionResetError

    with pytest.raises((ClientError, ConnectionError)):
        await proxy.call("PUT", "c/o", data=broken())
    assert (await proxy.call("GET", "c/o")).status == 404


async def test_deleted_objects_are_gone_and_can_be_stored_again(coded: Coded) -> None:
    proxy, servers = coded
    for away in ((), (2,)):
        proxy.clock.now += 1
        assert (await proxy.call("PUT", "c/o", data=body_of(9000))).status == 201
        with servers.away(*away):
            proxy.clock.now += 1
            assert (await proxy.call("DELETE", "c/o")).status == 204
        assert (await proxy.call("GET", "c/o")).status == 404
        assert (await proxy.call("GET", "c")).body == b""
        # A device that was away has its fragment still, and says so.
        assert (await proxy.call("DELETE", "c/o")).status == (204 if away else 404)
    assert (await proxy.call("DELETE", "c/never")).status == 404
    with servers.away(0, 1, 2):
        refused = await proxy.call("DELETE", "c/o")
    assert refused.status == 503
    assert b"it is not known whether it is deleted" in refused.body


async def test_rows_are_pending_at_devices_until_the_container_has_them(coded: Coded) -> None:
    proxy, servers = coded
    cluster, body = proxy.cluster, body_of(9000)
    for method in ("PUT", "DELETE"):
        proxy.clock.now += 1
        assert (await proxy.call(method, "c/o", data=body if method == "PUT" else b"")).status in {201, 204}
        async with asyncio.timeout(20):
            # Those that answered after the others may deliver it themselves, later.
            while servers.pending() > CODING.parity - 1:  # noqa: ASYNC110 - acknowledgements are sent in batches
                await asyncio.sleep(0.01)
    path = Path(ACCOUNT, "c", "late")
    with cluster.databases_down(*cluster.container_devices()):
        written = await cluster.objects.put(path, CODED, record_of(path, at(5)), body, footer_of(body))
        assert not written.container_missing
        assert servers.pending() >= CODING.data + 1
    # The devices bring the row themselves. To some of them the writer may just have acknowledged it.
    assert await servers.deliver_pending(cluster.rows) > 0
    assert (await proxy.call("GET", "c")).body == b"late\n"
    async with asyncio.timeout(20):
        while servers.pending():  # A device may have answered last.
            await servers.deliver_pending(cluster.rows)


async def test_objects_expire_as_copies_do(coded: Coded) -> None:
    proxy, servers = coded
    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, body_of(9000))).status == 201
    assert (await proxy.call("PUT", "c/stays", data=body_of(10))).status == 201
    shown = await proxy.call("GET", "c/o")
    assert (shown.status, shown.headers["X-Delete-At"], shown.body) == (200, "0000001100", body_of(9000))
    due = [len(store.native.expired(1100)) for store in servers.stores]
    assert (due, sum(len(store.native.expired(1099)) for store in servers.stores)) == ([1] * len(DEVICES), 0)
    settings, nodes = ExpirerSection(delay_s=0), ["here:6200"]

    async def expire() -> tuple[int, int]:
        queue, objects = queue_of(proxy.cluster), proxy.cluster.objects
        expirer = Expirer(queue, objects, settings, lambda: nodes, nodes, 7 * 86400.0, lambda: proxy.clock.now)
        report = await expirer.run_round()
        return report.expired, report.failed

    assert await expire() == (0, 0)
    proxy.clock.now = 1100.0
    assert (await proxy.call("GET", "c/o")).status == 404
    with servers.away(1):
        assert await expire() == (1, 0)
    assert (await proxy.call("GET", "c")).body == b"stays\n"
    assert [len(store.native.expired(1100)) for store in servers.stores] == [0, 1, 0, 0, 0, 0]
    assert (await proxy.call("GET", "c/stays")).body == body_of(10)


async def test_metadata_are_replaced_with_any_two_devices_away(tmp_path: Directory) -> None:
    body = body_of(9000)
    put = {"Content-Type": "text/put", "X-Object-Meta-Put": "1", "X-Object-Meta-Kept": "no"}
    patterns = [away for count in range(3) for away in itertools.combinations(DEVICES, count)]
    async with coded_proxy(tmp_path, devices=CODING.fragments + 2) as (proxy, servers):
        for number, away in enumerate(patterns):
            name = f"c/o{number}"
            assert (await proxy.call("PUT", name, put, body)).status == 201
            proxy.clock.now += 1
            headers = {"X-Object-Meta-Posted": str(number), "Content-Type": f"text/{number}"}
            with servers.away(*away):
                posted = await proxy.call("POST", name, headers)
                assert posted.status == 202, (away, posted.body)
                await assert_posted(proxy, name, number, body)
            # Whoever was away is back, and any two are not; with two that have missed it, spares were of the quorum.
            for gone in patterns if len(away) < 2 else []:
                with servers.away(*gone):
                    await assert_posted(proxy, name, number, body)
        listed = json.loads((await proxy.call("GET", "c?format=json")).body)
    types = {row["name"]: row["content_type"] for row in listed}
    assert types == {f"o{number}": f"text/{number}" for number in range(len(patterns))}


async def assert_posted(proxy: Proxy, name: str, number: int, body: bytes) -> None:
    """Assert that an object has the metadata of its POST, and its bytes."""
    for method in ("HEAD", "GET"):
        got = await proxy.call(method, name)
        assert (got.status, got.body) == (200, body if method == "GET" else b"")
        assert got.headers["X-Object-Meta-Posted"] == str(number)
        assert not {"X-Object-Meta-Put", "X-Object-Meta-Kept"} & set(got.headers)
        assert got.headers["Content-Type"] == f"text/{number}"


async def test_metadata_of_what_is_not_there_and_without_a_quorum(coded: Coded) -> None:
    proxy, servers = coded
    header = {"X-Object-Meta-A": "b"}
    assert (await proxy.call("POST", "c/o", header)).status == 404
    assert (await proxy.call("PUT", "c/o", data=b"data")).status == 201
    proxy.clock.now += 1
    with servers.away(0, 1, 2):
        refused = await proxy.call("POST", "c/o", header)
        assert refused.status == 503
        assert b"too few devices have kept them" in refused.body
    # A newer object has its own metadata, and nothing is left of them after it is deleted.
    assert (await proxy.call("POST", "c/o", header)).status == 202
    proxy.clock.now += 1
    assert (await proxy.call("PUT", "c/o", data=b"newer")).status == 201
    assert "X-Object-Meta-A" not in (await proxy.call("HEAD", "c/o")).headers
    assert (await proxy.call("DELETE", "c/o")).status == 204
    assert (await proxy.call("POST", "c/o", header)).status == 404


async def test_a_time_to_go_is_set_and_removed_by_a_post(coded: Coded) -> None:
    proxy, servers = coded
    assert (await proxy.call("PUT", "c/o", data=b"data")).status == 201
    at_s = int(proxy.clock.now) + 100
    for headers, expected in (({"X-Delete-At": str(at_s)}, 1), ({}, 0), ({"X-Delete-At": str(at_s)}, 1)):
        proxy.clock.now += 1
        assert (await proxy.call("POST", "c/o", headers)).status == 202
        # The last device may do it after enough others have.
        async with asyncio.timeout(20):
            stores = servers.stores
            while {len(one.native.expired(at_s)) for one in stores} != {expected}:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        shown = (await proxy.call("HEAD", "c/o")).headers
        assert ("X-Delete-At" in shown) == bool(expected)
    proxy.clock.now = at_s + 1.0
    for method in ("GET", "HEAD", "POST"):
        assert (await proxy.call(method, "c/o")).status == 404
