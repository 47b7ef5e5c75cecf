"""DELETE of static large objects with their segments, and what its report says."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from swiftlet.api.tests.large import entry, inline, put_large, put_manifest, put_segments
from swiftlet.api.tests.proxy import Answer, Proxy, proxy_of
from swiftlet.api.tests.versions import AT_ONCE, put_version, versions
from swiftlet.errors import Unavailable
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.settings import LimitsSection

JSON = {"Accept": "application/json"}


async def delete(proxy: Proxy, name: str = "big", headers: dict[str, str] | None = None, query: str = "") -> Answer:
    return await proxy.call("DELETE", f"c/{name}", headers or JSON, query="multipart-manifest=delete" + query)


async def names(proxy: Proxy) -> list[str]:
    return (await proxy.call("GET", "c")).body.decode().split()


async def test_alone_it_leaves_its_segments(proxy: Proxy) -> None:
    await put_large(proxy)
    assert (await proxy.call("DELETE", "c/big")).status == 204
    assert await names(proxy) == ["s/000", "s/001", "s/002", "s/003"]


async def test_with_all_segments(proxy: Proxy) -> None:
    await put_large(proxy)
    answer = await delete(proxy)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(answer.body) == {
        "Response Status": "200 OK",
        "Response Body": "",
        "Number Deleted": 5,
        "Number Not Found": 0,
        "Errors": [],
    }
    assert await names(proxy) == []


async def test_report_as_text(proxy: Proxy) -> None:
    await put_large(proxy)
    answer = await delete(proxy, headers={"Accept": "text/plain"})
    assert answer.body.decode().strip() == (
        "Number Deleted: 5\nNumber Not Found: 0\nResponse Body: \nResponse Status: 200 OK\nErrors:"
    )


async def test_report_as_xml(proxy: Proxy) -> None:
    await put_large(proxy)
    answer = await delete(proxy, headers={"Accept": "application/xml"})
    root = ElementTree.fromstring(answer.body)
    assert (root.tag, root.findtext("number_deleted"), root.findtext("response_status")) == ("delete", "5", "200 OK")


async def test_unacceptable_format_deletes_nothing(proxy: Proxy) -> None:
    await put_large(proxy)
    assert (await delete(proxy, headers={"Accept": "image/png"})).status == 406
    assert len(await names(proxy)) == 5


async def test_nested_ones_go_with_their_segments(proxy: Proxy) -> None:
    await put_large(proxy, "inner")
    await put_segments(proxy, [b"x"], "t/")
    await put_manifest(proxy, [entry("inner"), inline(b"y"), entry("t/000"), entry("t/000"), entry("inner")])
    report = json.loads((await delete(proxy)).body)
    assert (report["Number Deleted"], report["Number Not Found"]) == (7, 0)
    assert await names(proxy) == []


async def test_what_is_gone_already_is_counted(proxy: Proxy) -> None:
    await put_large(proxy)
    await proxy.call("DELETE", "c/s/001")
    report = json.loads((await delete(proxy)).body)
    assert report["Response Status"] == "200 OK"
    assert (report["Number Deleted"], report["Number Not Found"]) == (4, 1)


async def test_a_missing_object(proxy: Proxy) -> None:
    report = json.loads((await delete(proxy, "absent")).body)
    assert (report["Response Status"], report["Number Not Found"]) == ("200 OK", 1)


async def test_a_plain_object_is_not_deleted(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/plain", data=b"x")
    report = json.loads((await delete(proxy, "plain")).body)
    assert report["Response Status"] == "400 Bad Request"
    assert report["Errors"] == [["/c/plain", "Not an SLO manifest"]]
    assert await names(proxy) == ["plain"]


async def test_the_manifest_stays_while_a_segment_can_not_be_deleted(proxy: Proxy) -> None:
    await put_large(proxy)
    objects, remove = proxy.cluster.objects, proxy.cluster.objects.delete

    async def fails(path: Any, *arguments: Any) -> Any:
        if path.obj == "s/002":
            raise Unavailable("too few")
        return await remove(path, *arguments)

    objects.delete = fails  # type: ignore[method-assign,assignment]
    report = json.loads((await delete(proxy)).body)
    assert report["Response Status"] == "502 Bad Gateway"
    assert report["Errors"] == [["/c/s/002", "503 Service Unavailable"]]
    assert report["Number Deleted"] == 3
    assert await names(proxy) == ["big", "s/002"]
    objects.delete = remove  # type: ignore[method-assign]
    report = json.loads((await delete(proxy)).body)
    assert (report["Number Deleted"], report["Number Not Found"]) == (2, 3)


async def test_too_many_segments(cluster: MemoryCluster, tmp_path: Path) -> None:
    async with proxy_of(cluster, tmp_path) as proxy:
        await put_manifest(proxy, await put_segments(proxy, [b"x"] * 11))
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(slo_max_manifest_segments=1)) as proxy:
        report = json.loads((await delete(proxy)).body)
        assert report["Errors"] == [["/c/big", "Too many buffered slo segments to delete."]]
        assert len(await names(proxy)) == 12


@pytest.mark.parametrize(("query", "status"), [("&async=yes", 501), ("&async=no", 200)])
async def test_deleting_later_is_not_supported(proxy: Proxy, query: str, status: int) -> None:
    await put_large(proxy)
    assert (await delete(proxy, query=query)).status == status


class TestVersions:
    """`multipart-manifest=delete` with `version-id`."""

    @staticmethod
    async def large(proxy: Proxy) -> str:
        """A large object in a container with versions, its segments in one without."""
        assert (await proxy.call("PUT", "v", {"X-Versions-Enabled": "true"})).status == 201
        manifest = json.dumps(await put_segments(proxy)).encode()
        answer = await proxy.call("PUT", "v/big", data=manifest, query="multipart-manifest=put")
        return answer.headers["X-Object-Version-Id"]

    @pytest.fixture
    async def proxy(self, cluster: MemoryCluster, tmp_path: Path) -> AsyncIterator[Proxy]:
        async with proxy_of(cluster, tmp_path, versioning=AT_ONCE) as made:
            yield made

    async def test_one_version_goes_with_its_segments(self, proxy: Proxy) -> None:
        first = await self.large(proxy)
        second = await put_version(proxy, b"plain", "v/big")
        query = f"multipart-manifest=delete&version-id={first}"
        answer = await proxy.call("DELETE", "v/big", JSON, query=query)
        assert json.loads(answer.body)["Number Deleted"] == 5
        assert await names(proxy) == []
        assert await versions(proxy, container="v") == [("big", second, True)]
        again = json.loads((await proxy.call("DELETE", "v/big", JSON, query=query)).body)
        assert (again["Number Deleted"], again["Number Not Found"]) == (0, 1)
        plain = await proxy.call("DELETE", "v/big", JSON, query=f"multipart-manifest=delete&version-id={second}")
        assert json.loads(plain.body)["Errors"] == [["/v/big", "Not an SLO manifest"]]

    async def test_the_current_version_takes_the_object(self, proxy: Proxy) -> None:
        version = await self.large(proxy)
        await proxy.call("DELETE", "v/big", JSON, query=f"multipart-manifest=delete&version-id={version}")
        assert (await proxy.call("HEAD", "v/big")).status == 404
        assert await versions(proxy, container="v") == []


async def test_the_work_is_done_when_the_answer_begins(proxy: Proxy) -> None:
    await put_large(proxy)
    answer = await proxy.open("DELETE", "c/big", JSON, query="multipart-manifest=delete")
    assert answer.status == 200
    assert await names(proxy) == []
    assert json.loads(await answer.read())["Number Deleted"] == 5
    assert answer.headers["Content-Length"]
    answer.release()


@pytest.mark.parametrize(("accept", "begun"), [("application/json", b" "), ("application/xml", b"<?xml")])
async def test_white_space_keeps_long_work_alive(
    cluster: MemoryCluster, tmp_path: Path, accept: str, begun: bytes
) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(slo_yield_frequency_s=0.01)) as proxy:
        await put_large(proxy)
        objects, remove, go_on = proxy.cluster.objects, proxy.cluster.objects.delete, asyncio.Event()

        async def waits(path: Any, *arguments: Any) -> Any:
            await go_on.wait()
            return await remove(path, *arguments)

        objects.delete = waits  # type: ignore[method-assign,assignment]
        answer = await proxy.open("DELETE", "c/big", {"Accept": accept}, query="multipart-manifest=delete")
        assert (await answer.content.readexactly(len(begun))) == begun
        go_on.set()
        assert b"Deleted" in await answer.read() or accept != "application/json"
        assert await names(proxy) == []
