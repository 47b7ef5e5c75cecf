"""The older two modes: what PUT and DELETE do to the archive, and the containers' headers.

Fault model: archives that are not there, versions in them that are gone, a proxy that stops in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.api.reading.versioning import DELETE_MARKER
from swiftlet.api.tests.large import WHOLE, put_large
from swiftlet.api.tests.proxy import SMALL, Proxy, proxy_of
from swiftlet.api.tests.versions import AT_ONCE, list_json, put
from swiftlet.api.writing import object_locks
from swiftlet.api.writing.legacy_versions import archive_prefix
from swiftlet.errors import Unavailable
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.settings.linking import VersioningSection

STACK, HISTORY = "X-Versions-Location", "X-History-Location"
BOTH = pytest.mark.parametrize("header", [STACK, HISTORY])


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Proxy]:
    await cluster.make_container("old")
    async with proxy_of(cluster, tmp_path, versioning=AT_ONCE) as made:
        yield made


async def use(proxy: Proxy, header: str, location: str = "old") -> None:
    assert (await proxy.call("POST", "c", {header: location})).status == 204


async def body(proxy: Proxy, name: str = "c/o") -> bytes | None:
    answer = await proxy.call("GET", name)
    return answer.body if answer.status == 200 else None


async def archived(proxy: Proxy) -> list[bytes | None]:
    """What is in the archive, the oldest first; None for markers."""
    return [
        None if row["content_type"] == DELETE_MARKER else await body(proxy, f"old/{row['name']}")
        for row in await list_json(proxy, "old")
    ]


class TestContainers:
    @BOTH
    async def test_shown_changed_and_removed(self, proxy: Proxy, header: str) -> None:
        await use(proxy, header)
        other = HISTORY if header == STACK else STACK
        for method in ("GET", "HEAD"):
            headers = (await proxy.call(method, "c")).headers
            assert (headers[header], other in headers) == ("old", False)
        await use(proxy, other, "%C3%A9")
        headers = (await proxy.call("HEAD", "c")).headers
        assert (headers[other], header in headers) == ("%C3%A9", False)
        await proxy.call("POST", "c", {"X-Remove-" + header[2:]: "x"})
        assert not {header, other} & set((await proxy.call("HEAD", "c")).headers)
        await use(proxy, header)
        await use(proxy, header, "")
        assert header not in (await proxy.call("HEAD", "c")).headers
        assert (await proxy.call("PUT", "new", {header: "old"})).status == 201
        assert (await proxy.call("HEAD", "new")).headers[header] == "old"

    async def test_both_at_once(self, proxy: Proxy) -> None:
        assert (await proxy.call("POST", "c", {STACK: "a", HISTORY: "b"})).status == 400
        assert (await proxy.call("POST", "c", {STACK: "", HISTORY: "b"})).status == 204
        assert (await proxy.call("HEAD", "c")).headers[HISTORY] == "b"
        assert (await proxy.call("POST", "c", {STACK: "a", "X-Remove-Versions-Location": "x"})).status == 204
        assert (await proxy.call("HEAD", "c")).headers[STACK] == "a"

    @BOTH
    @pytest.mark.parametrize("location", ["a%2Fb", "a/b", "%", "%FF", "%00x", "x" * 257])
    async def test_what_is_no_container_is_412(self, proxy: Proxy, header: str, location: str) -> None:
        assert (await proxy.call("POST", "c", {header: location})).status == 412

    @BOTH
    async def test_the_setting(self, cluster: MemoryCluster, proxy: Proxy, tmp_path: Directory, header: str) -> None:
        await use(proxy, header)
        section = VersioningSection(allow_versioned_writes=False, agreement_s=0)
        async with proxy_of(cluster, tmp_path, versioning=section) as off:
            assert (await off.call("PUT", "d", {header: "old"})).status == 412
            assert (await off.call("POST", "c", {"X-Remove-" + header[2:]: "x"})).status == 204
            async with off.client.get("/info") as answer:
                assert "versioned_writes" not in await answer.json()
        async with proxy.client.get("/info") as answer:
            flags = (await answer.json())["versioned_writes"]["allowed_flags"]
        assert header.lower() in flags

    async def test_while_it_is_off_nothing_is_kept(
        self, cluster: MemoryCluster, proxy: Proxy, tmp_path: Directory
    ) -> None:
        await use(proxy, STACK)
        section = VersioningSection(allow_versioned_writes=False, agreement_s=0)
        async with proxy_of(cluster, tmp_path, versioning=section) as off:
            await put(off, b"1")
            await put(off, b"2")
        assert await archived(proxy) == []


@BOTH
@pytest.mark.parametrize("size", [1, SMALL, 5 * SMALL])
async def test_a_put_keeps_what_was_there(proxy: Proxy, header: str, size: int) -> None:
    await use(proxy, header)
    for number in range(3):
        await put(proxy, bytes([48 + number]) * size, headers={"X-Object-Meta-N": str(number), "Content-Type": "a/b"})
    assert await archived(proxy) == [b"0" * size, b"1" * size]
    first = (await list_json(proxy, "old"))[0]["name"]
    assert first.startswith("001o/")
    headers = (await proxy.call("HEAD", f"old/{first}")).headers
    assert (headers["X-Object-Meta-N"], headers["Content-Type"]) == ("0", "a/b")
    await proxy.call("POST", "c/o", {"X-Object-Meta-N": "9"})
    assert len(await archived(proxy)) == 2, "a POST makes no version"


@pytest.mark.parametrize(("name", "prefix"), [("o", "001o/"), ("é", "002é/"), ("x" * 300, "12c" + "x" * 300 + "/")])
def test_names_in_the_archive(name: str, prefix: str) -> None:
    assert archive_prefix(name) == prefix


async def test_a_stack(proxy: Proxy) -> None:
    await use(proxy, STACK)
    for one in (b"1", b"2", b"3"):
        await put(proxy, one)
    for left in (b"2", b"1"):
        assert (await proxy.call("DELETE", "c/o")).status == 204
        assert await body(proxy) == left
    assert await archived(proxy) == []
    assert (await proxy.call("DELETE", "c/o")).status == 204
    assert await body(proxy) is None
    assert (await proxy.call("DELETE", "c/o")).status == 404


async def test_a_stack_brings_metadata_back(proxy: Proxy) -> None:
    await use(proxy, STACK)
    await put(proxy, b"1", headers={"X-Object-Meta-Color": "red", "Content-Type": "a/b"})
    await put(proxy, b"2")
    await proxy.call("DELETE", "c/o")
    headers = (await proxy.call("HEAD", "c/o")).headers
    assert (headers["X-Object-Meta-Color"], headers["Content-Type"]) == ("red", "a/b")


async def test_a_history(proxy: Proxy) -> None:
    await use(proxy, HISTORY)
    await put(proxy, b"1")
    await put(proxy, b"2")
    assert (await proxy.call("DELETE", "c/o")).status == 204
    assert await body(proxy) is None
    assert await archived(proxy) == [b"1", b"2", None]
    assert (await proxy.call("DELETE", "c/o")).status == 404
    first = (await list_json(proxy, "old"))[0]["name"]
    assert (await proxy.call("COPY", f"old/{first}", {"Destination": "c/o"})).status == 201
    assert await body(proxy) == b"1"


async def test_a_stack_over_a_history(proxy: Proxy) -> None:
    """A marker is undone as a version is: first what was written after it goes, then what was before it comes back."""
    await use(proxy, HISTORY)
    await put(proxy, b"1")
    await proxy.call("DELETE", "c/o")
    await put(proxy, b"2")
    await use(proxy, STACK)
    assert (await proxy.call("DELETE", "c/o")).status == 204
    assert (await body(proxy), await archived(proxy)) == (None, [b"1", None])
    assert (await proxy.call("DELETE", "c/o")).status == 204
    assert (await body(proxy), await archived(proxy)) == (b"1", [])


@BOTH
async def test_without_an_archive(proxy: Proxy, header: str) -> None:
    await use(proxy, header, "none")
    await put(proxy, b"1")
    assert (await proxy.call("PUT", "c/o", data=b"2")).status == 412
    assert await body(proxy) == b"1"
    assert (await proxy.call("DELETE", "c/o")).status == (412 if header == HISTORY else 204)


async def test_links_and_manifests_are_kept_as_such(proxy: Proxy) -> None:
    await use(proxy, STACK)
    await put_large(proxy)
    await put(proxy, b"small", "c/big")
    await proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/big"})
    await put(proxy, b"plain", "c/link")
    assert await archived(proxy) == [WHOLE, b"small"]
    await proxy.call("DELETE", "c/big")
    assert await body(proxy, "c/big") == WHOLE
    await proxy.call("DELETE", "c/link")
    assert (await proxy.call("HEAD", "c/link", query="symlink=get")).headers["X-Symlink-Target"] == "c/big"


async def test_rights_at_the_object_are_enough(proxy: Proxy) -> None:
    await use(proxy, STACK)
    await put(proxy, b"1")
    await proxy.call("POST", "c", {"X-Container-Write": "other:user"})
    writer = proxy.token_of("other:user")
    assert (await proxy.anonymous("PUT", "c/o", writer, b"2")).status == 201
    assert (await proxy.anonymous("DELETE", "c/o", writer)).status == 204
    assert await body(proxy) == b"1"
    assert (await proxy.anonymous("DELETE", "c/o")).status == 401


async def test_a_proxy_that_stops_after_the_copy(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await use(proxy, STACK)
    await put(proxy, b"1")
    objects = proxy.api.objects
    put_really = objects.put

    async def stop(path: Path, *rest: Any) -> Any:
        if path.container == "c":
            raise Unavailable("stopped")
        return await put_really(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(objects, "put", stop)
        assert (await proxy.call("PUT", "c/o", data=b"2")).status == 503
    assert (await body(proxy), await archived(proxy)) == (b"1", [b"1"])
    await put(proxy, b"2")
    assert await archived(proxy) == [b"1"], "the same copy, not another"


@pytest.mark.parametrize(("header", "left"), [(STACK, b"1"), (HISTORY, None)])
async def test_deletion_of_version_null_is_that_of_the_object(proxy: Proxy, header: str, left: bytes | None) -> None:
    await use(proxy, header)
    await put(proxy, b"1")
    await put(proxy, b"2")
    assert (await proxy.call("DELETE", "c/o", query="version-id=null")).status == 204
    assert await body(proxy) == left


class TestWritersAtOnce:
    @BOTH
    @pytest.mark.parametrize("size", [10, 2 * SMALL])
    async def test_no_version_is_lost(self, proxy: Proxy, header: str, size: int) -> None:
        await use(proxy, header)
        sent = [f"{number:02}".encode() * (size // 2) for number in range(8)]
        answers = await asyncio.gather(*(proxy.call("PUT", "c/o", data=data) for data in sent))
        stored = [data for data, answer in zip(sent, answers, strict=True) if answer.status == 201]
        # A large one that began before what is there has to be sent again; it is not said to be stored when it is not.
        assert {answer.status for answer in answers} <= ({201} if size < SMALL else {201, 409, 503})
        assert stored
        current, older = await body(proxy), await archived(proxy)
        if len(stored) < len(sent) and current in older:
            # One that was refused had copied what it would have replaced.
            older.remove(current)
        assert sorted(stored) == sorted(one or b"" for one in (*older, current))

    @BOTH
    async def test_nor_by_deletions(self, proxy: Proxy, header: str) -> None:
        await use(proxy, header, "old")
        await put(proxy, b"first", "c/o")
        sent = [f"{number:02}".encode() for number in range(5)]
        calls = [proxy.call("PUT", "c/o", data=data) for data in sent]
        answers = await asyncio.gather(*calls, proxy.call("DELETE", "c/o"), proxy.call("DELETE", "c/o"))
        assert {answer.status for answer in answers} <= {201, 204, 404}
        kept = {one for one in [*await archived(proxy), await body(proxy)] if one is not None}
        # A stack gives up what is deleted; a history keeps everything.
        assert kept == {b"first", *sent} if header == HISTORY else len(kept) >= len(sent) - 1

    async def test_a_turn_that_is_not_ended_ends_by_its_time(
        self, proxy: Proxy, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await use(proxy, STACK)
        await put(proxy, b"first", "c/o")
        monkeypatch.setattr(object_locks, "LIFE_S", 1)
        dead = object_locks.ObjectLock(proxy.api, Path("AUTH_test", "c", "o"))
        await dead.wait(5.0)
        assert (await proxy.call("PUT", "c/o", data=b"second")).status == 201
        assert await archived(proxy) == [b"first"]

    async def test_without_a_turn_nothing_is_replaced(self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
        await use(proxy, STACK)
        await put(proxy, b"first", "c/o")

        async def away(*_: Any) -> None:
            raise Unavailable("too few account servers")

        monkeypatch.setattr(proxy.cluster.listings.claims, "take", away)
        assert (await proxy.call("PUT", "c/o", data=b"second")).status == 503
        assert (await proxy.call("DELETE", "c/o")).status == 503
        assert await body(proxy) == b"first"
        monkeypatch.undo()
        monkeypatch.setattr(object_locks, "SAFE_S", -1)
        assert (await proxy.call("PUT", "c/o", data=b"second")).status == 503
        assert await body(proxy) == b"first"
