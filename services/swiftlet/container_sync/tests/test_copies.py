"""Containers and their copies in another cluster: what gets there, what stays, and that it comes to an end."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from swiftlet.container_sync import copying, peer, registry
from swiftlet.container_sync.tests.sites import KEY, Site, two_sites
from swiftlet.errors import Unavailable
from swiftlet.listing import replica
from swiftlet.listing.database import POINT
from swiftlet.listing.shards import shard_name
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, MetadataItem, ObjectRow
from swiftlet.names import Path as Name
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH
from swiftlet.placement.transfers import ReplicatedDownload
from swiftlet.timestamp import Timestamp

Sites = tuple[Site, Site]


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[Sites]:
    async with two_sites(tmp_path) as made:
        yield made


async def test_objects_posts_and_deletions_get_to_the_copy_with_their_times(sites: Sites) -> None:
    east, west = sites
    await east.copy_to(west)
    names = ["a", "b/ü 1%", "c//d", "e?f#g", "gone"]
    for name in names:
        headers = {"Content-Type": "text/x", "X-Object-Meta-Color": "blaü", "Content-Disposition": "inline"}
        assert (await east.call("PUT", "c/" + quote(name), headers, name.encode())).status == 201
    large = b"0123456789" * 20_000
    assert (await east.call("PUT", "c/large", data=io.BytesIO(large))).status == 201
    report = await east.round()
    assert (report.equal, report.behind, report.failed) == (1, 0, 0)
    assert await west.listed() == await east.listed()
    got = await west.proxy.call("GET", "c/b/%C3%BC%201%25")
    assert (got.body, got.headers["X-Object-Meta-Color"]) == ("b/ü 1%".encode(), "blaü")
    assert (got.headers["Content-Type"], got.headers["Content-Disposition"]) == ("text/x", "inline")
    assert (await west.proxy.call("GET", "c/large")).body == large

    assert (await east.call("POST", "c/a", {"X-Object-Meta-Color": "red"})).status == 202
    assert (await east.call("DELETE", "c/gone")).status == 204
    assert (await east.call("PUT", "c/c%2F%2Fd", data=b"anew")).status == 201
    assert (await east.round()).equal == 1
    assert await west.listed() == await east.listed()
    assert (await west.proxy.call("HEAD", "c/a")).headers["X-Object-Meta-Color"] == "red"
    assert await west.time_of("c/a") == await east.time_of("c/a")
    assert (await west.proxy.call("GET", "c/c%2F%2Fd")).body == b"anew"
    assert (await west.proxy.call("GET", "c/gone")).status == 404


async def test_copies_in_both_directions_come_to_rest(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    east, west = sites
    await east.copy_to(west)
    await west.copy_to(east)
    for number in range(5):
        assert (await east.call("PUT", f"c/east{number}", data=b"e")).status == 201
        assert (await west.call("PUT", f"c/west{number}", data=b"w")).status == 201
    assert (await east.call("PUT", "c/both", data=b"older")).status == 201
    assert (await west.call("PUT", "c/both", data=b"newer")).status == 201
    for _ in range(2):
        assert (await east.round()).clean
        assert (await west.round()).clean
    assert await west.listed() == await east.listed()
    assert len(await east.listed()) == 11
    assert (await east.proxy.call("GET", "c/both")).body == b"newer"

    sent: list[str] = []
    monkeypatch.setattr(copying.Copying, "_send", lambda self, name, at: sent.append(name))
    for site in (east, west):
        site.restart()
        assert (await site.round()).equal == 1
    assert not sent, "both are equal, so nothing is sent again"

    monkeypatch.undo()
    assert (await west.call("DELETE", "c/east0")).status == 204
    assert (await west.round()).clean
    assert (await east.round()).clean
    assert (await west.round()).clean
    assert await west.listed() == await east.listed()
    assert "east0" not in await east.listed()


async def test_a_container_that_has_not_changed_costs_no_question_to_the_copy(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    east, west = sites
    await east.copy_to(west)
    assert (await east.call("PUT", "c/o", data=b"x")).status == 201
    assert (await east.round()).equal == 1
    asked: list[str] = []
    real = peer.HttpPeer._asking

    def counted(self: peer.HttpPeer, method: str, *rest: object) -> object:
        asked.append(method)
        return real(self, method, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(peer.HttpPeer, "_asking", counted)
    assert (await east.round()).equal == 1
    assert not asked
    assert (await east.round(after_s=east.settings.verify_s + 1)).equal == 1
    assert asked == ["GET"], "after a long time it is compared again"
    assert (await east.call("PUT", "c/p", data=b"x")).status == 201
    asked.clear()
    assert (await east.round()).equal == 1
    assert sorted(asked) == ["GET", "HEAD", "PUT"]


async def test_many_rows_over_several_pages(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    east, west = sites
    monkeypatch.setattr(replica, "PAGE_ROWS", 7)
    for module in (peer, copying):
        monkeypatch.setattr(module, "LISTING_ROWS", 5)
    await east.copy_to(west)
    for number in range(40):
        assert (await east.call("PUT", f"c/{number:03}", data=b"x")).status == 201
    for name in ("0005", "005x", "zzz"):  # What only the copy has stays there.
        assert (await west.call("PUT", f"c/{name}", data=b"own")).status == 201
    for number in range(0, 40, 3):
        assert (await east.call("DELETE", f"c/{number:03}")).status == 204
    assert (await east.round()).equal == 1
    here, there = await east.listed(), await west.listed()
    assert there.keys() - here.keys() == {"0005", "005x", "zzz"}
    assert {name: there[name] for name in here} == here
    for number in range(1, 40, 2):
        assert (await east.call("POST", f"c/{number:03}", {"X-Object-Meta-A": "b"})).status in {202, 404}
    assert (await east.round()).equal == 1
    here, there = await east.listed(), await west.listed()
    assert {name: there[name] for name in here} == here


async def test_rows_in_shards_are_compared_too(sites: Sites) -> None:
    """A container that has been split at `m`, with an object whose row is in the shard alone."""
    east, west = sites
    await east.copy_to(west)
    assert (await east.call("PUT", "c/a", data=b"x")).status == 201
    transport, ring = east.cluster.listing_transport, east.cluster.rings.container()
    at, name = east.proxy.api.clock.next(), DatabaseName(ACCOUNT, "c")

    def id_of(database: DatabaseName) -> DatabaseId:
        digest = HASH_PATH(database.account, database.container)
        return DatabaseId(DatabaseKind.CONTAINER, ring.partition_of(digest), digest)

    for device in ring.primaries(id_of(name).partition):
        state = await transport.database_state(device, id_of(name))
        items = tuple(sorted((*state.metadata, MetadataItem(POINT + "m", at, "1")), key=lambda item: item.name))
        await transport.exchange_state(device, id_of(name), replace(state, metadata=items))
    assert (await east.round()).equal == 1, "a shard without rows has no database yet"

    path, shard = Name(ACCOUNT, "c", "z"), shard_name(name, "m")
    for device in east.cluster.primaries(path):
        east.cluster.place(device, at.seconds, b"in the shard", path)
    row = ObjectRow("z", Timestamp.at(at.seconds), len(b"in the shard"), "etag", "text/plain")
    for device in ring.primaries(id_of(shard).partition):
        await transport.merge_rows(device, id_of(shard), shard, [row])
    assert (await east.round()).equal == 1
    assert (await west.proxy.call("GET", "c/z")).body == b"in the shard"


async def test_manifests_and_links_go_as_they_are(sites: Sites) -> None:
    east, west = sites
    await east.copy_to(west)
    await east.copy_to(west, "segments", "segments")
    pieces = [b"a" * 1200, b"b" * 300]
    for number, piece in enumerate(pieces):
        assert (await east.call("PUT", f"segments/s{number}", data=piece)).status == 201
    manifest = json.dumps([{"path": "/segments/s0"}, {"data": "aW5saW5l"}, {"path": "/segments/s1", "range": "0-9"}])
    assert (await east.proxy.call("PUT", "c/slo", {}, manifest.encode(), "multipart-manifest=put")).status == 201
    assert (await east.call("PUT", "c/dlo", {"X-Object-Manifest": "segments/s"}, b"")).status == 201
    assert (await east.call("PUT", "c/link", {"X-Symlink-Target": "segments/s0"}, b"")).status == 201
    etag = (await east.proxy.call("HEAD", "segments/s0")).headers["Etag"]
    static = {"X-Symlink-Target": "segments/s0", "X-Symlink-Target-Etag": etag}
    assert (await east.call("PUT", "c/static", static, b"")).status == 201
    assert (await east.round()).equal == 2
    for name in ("slo", "dlo", "link", "static"):
        here, there = [await site.proxy.call("GET", f"c/{name}") for site in (east, west)]
        assert (there.status, there.body) == (200, here.body), name
        assert there.headers["Etag"] == here.headers["Etag"]
    assert (await west.proxy.call("GET", "c/slo")).body == pieces[0] + b"inline" + b"b" * 10
    rows = [await site.proxy.call("GET", "c", query="format=json") for site in (east, west)]
    assert json.loads(rows[0].body) == json.loads(rows[1].body)
    assert (await east.call("PUT", "c/other", data=b"x")).status == 201
    assert (await east.round()).equal == 2


async def test_what_the_owner_of_the_copy_deleted_is_sent_once(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    east, west = sites
    await east.copy_to(west)
    assert (await east.call("PUT", "c/o", data=b"x")).status == 201
    assert (await east.round()).equal == 1
    assert (await west.call("DELETE", "c/o")).status == 204
    puts: list[bool] = []
    real = peer.HttpPeer.put

    async def put(self: peer.HttpPeer, *rest: object) -> bool:
        puts.append(await real(self, *rest))  # type: ignore[arg-type]
        return puts[-1]

    monkeypatch.setattr(peer.HttpPeer, "put", put)
    east.restart()
    for name in "pqr":
        assert (await east.call("PUT", f"c/{name}", data=b"x")).status == 201
        assert (await east.round()).equal == 1
    assert puts.count(False) == 1, "the deletion there is newer, and this is remembered"
    assert "o" not in await west.listed()


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_copy_that_is_newer_stays(sites: Sites, size: int) -> None:
    """The worker sees that before it sends; who sends all the same changes nothing."""
    east, west = sites
    await east.copy_to(west)
    assert (await east.call("PUT", "c/o", data=b"o" * size)).status == 201
    assert (await west.call("PUT", "c/o", data=b"newer")).status == 201
    target = east.realms.realms.target(f"//us/west/{ACCOUNT}/c")
    there = peer.HttpPeer(east.session, target, KEY)

    async def body() -> AsyncIterator[bytes]:
        yield b"o" * size

    at = await east.time_of("c/o")
    assert not await there.put("o", {"X-Timestamp": at.normal}, body(), size)
    await there.delete("o", at)
    assert (await east.round()).equal == 1
    assert (await west.proxy.call("GET", "c/o")).body == b"newer"


async def test_failures_are_told_and_tried_again_after_a_pause(sites: Sites) -> None:
    east, west = sites
    await east.copy_to(west)
    assert (await east.call("PUT", "c/o", data=b"x")).status == 201
    assert (await west.call("POST", "c", {"X-Container-Sync-Key": "another"})).status == 204
    report = await east.round()
    assert (report.failed, report.equal) == (1, 0)
    [told] = east.worker.report()
    assert told["container"] == f"/{ACCOUNT}/c"
    assert "X-Container-Sync-Key" in str(told["problem"])
    assert (await west.call("POST", "c", {"X-Container-Sync-Key": KEY})).status == 204
    report = await east.round()
    assert (report.failed, report.equal) == (0, 0), "it pauses"
    assert report.lag_s > 0
    assert (await east.round(after_s=100)).equal == 1
    assert (east.worker.report(), (await east.round()).lag_s) == ([], 0)

    assert (await east.call("PUT", "c/p", data=b"x")).status == 201
    assert (await west.call("DELETE", "c/o")).status == 204
    assert (await west.call("DELETE", "c")).status == 204
    assert (await east.round()).failed == 1
    assert (await west.call("PUT", "c", {"X-Container-Sync-Key": KEY})).status == 201
    assert (await east.round(after_s=1000)).equal == 1
    assert "p" in await west.listed()


@pytest.mark.parametrize("size", [10, 200_000])
async def test_an_object_that_cannot_be_read_holds_up_no_other(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    east, west = sites
    await east.copy_to(west)
    for name in ("lost", "kept"):
        assert (await east.call("PUT", f"c/{name}", data=b"x" * size)).status == 201
    real = ReplicatedDownload.chunks

    async def chunks(self: ReplicatedDownload) -> AsyncIterator[bytes]:
        if self.info.name.endswith("lost"):
            raise Unavailable("no device has the rest")
        async for chunk in real(self):
            yield chunk

    monkeypatch.setattr(ReplicatedDownload, "chunks", chunks)
    report = await east.round()
    assert (report.behind, report.failed) == (1, 0)
    assert list(await west.listed()) == ["kept"]
    monkeypatch.undo()
    assert (await east.round()).equal == 1
    assert await west.listed() == await east.listed()


async def test_a_long_comparison_makes_way_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "PAGE_ROWS", 3)
    async with two_sites(tmp_path, container_time_s=1.0) as (east, west):
        await east.copy_to(west)
        for number in range(12):
            assert (await east.call("PUT", f"c/{number:03}", data=b"x")).status == 201
        real = peer.HttpPeer.put

        async def slow(self: peer.HttpPeer, *rest: object) -> bool:
            east.passed_s += 0.4
            return await real(self, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(peer.HttpPeer, "put", slow)
        counts = []
        for _ in range(20):
            report = await east.round()
            counts.append(len(await west.listed()))
            if report.equal:
                break
        assert counts[0] < 12 == counts[-1], counts
        assert await west.listed() == await east.listed()


async def test_the_second_node_takes_over_later(sites: Sites) -> None:
    east, west = sites
    await east.copy_to(west)
    assert (await east.call("PUT", "c/o", data=b"x")).status == 201
    east.rank = 1
    assert (await east.round()).equal == 0
    assert (await east.round()).equal == 0
    assert await west.listed() == {}
    assert (await east.round(after_s=east.settings.takeover_s)).equal == 1
    assert "o" in await west.listed()
    east.rank = None
    assert (await east.round(after_s=10_000)).equal == 0


async def test_what_has_no_copy_any_more_is_forgotten(sites: Sites) -> None:
    east, west = sites
    await east.copy_to(west)
    assert (await east.round()).equal == 1
    assert (await east.call("POST", "c", {"X-Remove-Container-Sync-To": "x"})).status == 204
    known = registry.SyncRegistry(east.cluster.listings, east.proxy.api.clock.next)
    assert (await east.round()).equal == 0
    assert [entry.name for entry in (await known.page(""))[0]] == [f"/{ACCOUNT}/c"], "it may be about to get one"
    east.wait(4000)
    await east.round()
    assert (await known.page(""))[0] == []


async def test_what_expires_and_versions(sites: Sites) -> None:
    east, west = sites
    await east.copy_to(west)
    at = int(east.proxy.clock.now) + 100
    assert (await east.call("PUT", "c/o", {"X-Delete-At": str(at)}, b"x")).status == 201
    assert (await east.round()).equal == 1
    assert (await west.proxy.call("HEAD", "c/o")).headers["X-Delete-At"] == f"{at:010d}"
    assert (await west.call("PUT", "v", {"X-Container-Sync-Key": KEY, "X-Versions-Enabled": "true"})).status == 201
    headers = {"X-Container-Sync-Key": KEY, "X-Container-Sync-To": f"//us/west/{ACCOUNT}/v"}
    assert (await east.call("POST", "c", headers)).status == 204
    assert (await east.round()).failed == 1
    [told] = east.worker.report()
    assert "keeps versions" in str(told["problem"])
