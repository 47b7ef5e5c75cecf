"""Listings of versions: pages of every size put together are the whole, whatever the parameters; markers, prefixes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.api.http.reserved import split_version, version_name, version_of, version_path, versions_container
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.api.tests.versions import AT_ONCE, enable, put, put_version, versions
from swiftlet.model import ObjectRow
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster, at
from swiftlet.timestamp import Timestamp


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path, versioning=AT_ONCE) as made:
        yield made


async def fill(proxy: Proxy) -> list[tuple[str, str, bool]]:
    """Objects with no version, with some, deleted, and current ones that are none; the whole listing, worked out."""
    await put(proxy, b"0", "c/a-null")
    await enable(proxy)
    ids = {
        name: [await put_version(proxy, bytes([48 + n]), f"c/{name}") for n in range(3)] for name in ("b", "b/x", "d")
    }
    await put_version(proxy, b"c", "c/c")
    gone = (await proxy.call("DELETE", "c/b/x")).headers["X-Object-Version-Id"]
    await enable(proxy, enabled=False)
    await put(proxy, b"now null", "c/d")
    await put(proxy, b"z", "c/z-null")
    await enable(proxy)
    lines = [("a-null", "null", True)]
    lines += [("b", version, version == ids["b"][2]) for version in reversed(ids["b"])]
    lines += [("b/x", gone, True)] + [("b/x", version, False) for version in reversed(ids["b/x"])]
    lines += [(name, version, latest) for name, version, latest in await versions(proxy, "prefix=c")]
    lines += [("d", "null", True)] + [("d", version, False) for version in reversed(ids["d"])]
    return [*lines, ("z-null", "null", True)]


async def test_pages_of_every_size_in_both_orders(proxy: Proxy) -> None:
    whole = await fill(proxy)
    assert await versions(proxy) == whole
    assert await versions(proxy, "reverse=on") == list(reversed(whole))
    for reverse in ("", "&reverse=on"):
        for limit in (1, 2, 3, 5, 20):
            pages: list[tuple[str, str, bool]] = []
            query = f"limit={limit}{reverse}"
            while page := await versions(proxy, query):
                assert len(page) <= limit
                pages += page
                name, version, _ = page[-1]
                query = f"limit={limit}{reverse}&marker={name}&version_marker={version}"
            assert pages == (list(reversed(whole)) if reverse else whole), (reverse, limit)


async def test_markers(proxy: Proxy) -> None:
    whole = await fill(proxy)
    for name in ("a", "a-null", "b", "b/x", "d", "zz"):
        assert await versions(proxy, f"marker={name}") == [line for line in whole if line[0] > name]
        assert await versions(proxy, f"end_marker={name}") == [line for line in whole if line[0] < name]
        backward = await versions(proxy, f"marker={name}&reverse=on")
        assert backward == [line for line in reversed(whole) if line[0] < name]
        above = await versions(proxy, f"end_marker={name}&reverse=on")
        assert above == [line for line in reversed(whole) if line[0] > name]
        assert await versions(proxy, f"prefix={name}") == [line for line in whole if line[0].startswith(name)]
    assert await versions(proxy, "limit=0") == []


async def names(proxy: Proxy, query: str) -> list[str]:
    answer = await proxy.call("GET", "c", query="versions&" + query)
    lines: list[dict[str, Any]] = json.loads(answer.body)
    return [line.get("subdir") or line["name"] for line in lines]


async def test_delimiters(proxy: Proxy) -> None:
    await fill(proxy)
    assert await names(proxy, "delimiter=/") == ["a-null", "b", "b", "b", "b/", "c", "d", "d", "d", "d", "z-null"]
    assert await names(proxy, "delimiter=/&marker=b/") == ["c", "d", "d", "d", "d", "z-null"]
    assert await names(proxy, "delimiter=/&limit=5") == ["a-null", "b", "b", "b", "b/"]
    assert await names(proxy, "delimiter=/&prefix=b/") == ["b/x"] * 4
    assert await names(proxy, "delimiter=-null") == ["a-null"] + await names(proxy, "prefix=b") + [
        "c",
        "d",
        "d",
        "d",
        "d",
        "z-null",
    ]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("version_marker=null", 400),
        ("marker=b&version_marker=x", 400),
        ("delimiter=1", 400),
        ("path=b", 400),
        ("limit=10001", 412),
        ("format=xml", 406),
        ("format=plain", 406),
    ],
)
async def test_what_is_refused(proxy: Proxy, query: str, status: int) -> None:
    assert (await proxy.call("GET", "c", query="versions&" + query)).status == status


async def test_what_is_accepted(proxy: Proxy) -> None:
    for accept, status in (("application/json", 200), ("*/*", 200), ("text/plain", 406), ("application/xml", 406)):
        answer = await proxy.call("GET", "c", {"Accept": accept}, query="versions")
        assert answer.status == status
        if status == 200:
            assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert (await proxy.call("GET", "none", query="versions")).status == 404


async def test_without_versions_everything_is_null(proxy: Proxy) -> None:
    await put(proxy, b"1")
    assert await versions(proxy) == [("o", "null", True)]


async def test_a_link_whose_version_is_not_listed_yet(proxy: Proxy) -> None:
    """The hidden container's listing lags behind: what is current is shown from the link."""
    await enable(proxy)
    first = await put_version(proxy, b"1")
    second = await put_version(proxy, b"22")
    hidden, version = versions_container("c"), Timestamp.parse(second)
    gone = ObjectRow(version_name("o", version), version, deleted=True)
    partition = proxy.cluster.container_partition(hidden)
    for device in proxy.cluster.container_devices(hidden):
        await proxy.cluster.databases[device.name].update_rows(partition, ACCOUNT, hidden, [gone])
    lines = json.loads((await proxy.call("GET", "c", query="versions")).body)
    assert [(line["version_id"], line["is_latest"], line["bytes"]) for line in lines] == [
        (second, True, 2),
        (first, False, 1),
    ]
    assert "symlink_path" not in lines[0]


@pytest.mark.parametrize("obj", ["o", "a/b", "é", "x\n", " ", "9"])
def test_names_of_versions(obj: str) -> None:
    path = Path(ACCOUNT, "c", obj)
    for second in (0, 1, 1700000000.12345, 9999999999.0):
        hidden = version_path(path, at(second))
        assert version_of(hidden) == (path, at(second))
        assert split_version(version_name(obj, at(second))) == (obj, at(second))
    assert version_name(obj, at(2)) < version_name(obj, at(1)), "the newest first"


@pytest.mark.parametrize("name", ["", "o", "\0", "\0o", "\0o\0", "\0o\0123", "\0o\0" + "9" * 20, "\0o\0" + "x" * 20])
def test_other_names_are_no_versions(name: str) -> None:
    assert split_version(name) is None
