"""PUT of static large objects' manifests: what is accepted, what is refused and how, heartbeat."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from swiftlet.api.tests.large import (
    SEGMENTS,
    WHOLE,
    entry,
    inline,
    md5,
    put_large,
    put_manifest,
    put_segments,
    slo_etag,
)
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.settings import LimitsSection

ETAG = slo_etag(*map(md5, SEGMENTS))


async def test_a_manifest_becomes_the_whole(proxy: Proxy) -> None:
    answer = await put_large(proxy, headers={"Content-Type": "video/x", "X-Object-Meta-Color": "red"})
    assert answer.headers["Etag"] == f'"{ETAG}"'
    assert "Last-Modified" in answer.headers
    got = await proxy.call("GET", "c/big")
    assert (got.status, got.body) == (200, WHOLE)
    assert got.headers["Etag"] == f'"{ETAG}"'
    assert got.headers["Content-Length"] == str(len(WHOLE))
    assert got.headers["Content-Type"] == "video/x"
    assert got.headers["X-Static-Large-Object"] == "True"
    assert got.headers["X-Object-Meta-Color"] == "red"
    assert got.headers["Accept-Ranges"] == "bytes"
    head = await proxy.call("HEAD", "c/big")
    assert head.status == 200
    assert {n: v for n, v in head.headers.items() if n != "Date" and not n.endswith("-Id")} == {
        n: v for n, v in got.headers.items() if n != "Date" and not n.endswith("-Id")
    }


async def test_etag_and_size_may_be_left_out_or_null(proxy: Proxy) -> None:
    await put_segments(proxy)
    entries = [
        entry("s/000"),
        entry("s/001", etag=None, size_bytes=None),
        entry("s/002", size_bytes="1"),
        entry("s/003"),
    ]
    assert (await put_manifest(proxy, entries)).headers["Etag"] == f'"{ETAG}"'
    assert (await proxy.call("GET", "c/big")).body == WHOLE


async def test_ranges_and_inline_data_count_in_the_etag(proxy: Proxy) -> None:
    first, *_ = await put_segments(proxy)
    entries = [first | {"range": "10-19"}, inline(b"between"), first | {"range": "-5"}, first | {"range": "0-1499"}]
    answer = await put_manifest(proxy, entries)
    tag = md5(SEGMENTS[0])
    assert answer.headers["Etag"] == f'"{slo_etag(f"{tag}:10-19;", md5(b"between"), f"{tag}:1495-1499;", tag)}"'
    whole = SEGMENTS[0][10:20] + b"between" + SEGMENTS[0][-5:] + SEGMENTS[0]
    assert (await proxy.call("GET", "c/big")).body == whole
    assert (await proxy.call("GET", "c/big", {"Range": "bytes=8-18"})).body == whole[8:19]


async def test_data_segments_do_not_count_as_segments(cluster: MemoryCluster, tmp_path: Path) -> None:
    limits = LimitsSection(slo_max_manifest_segments=2)
    async with proxy_of(cluster, tmp_path, limits=limits) as proxy:
        entries = await put_segments(proxy)
        answer = await put_manifest(proxy, [*entries[:2], inline(b"x"), inline(b"y")])
        assert answer.status == 201
        answer = await put_manifest(proxy, entries[:3])
        assert (answer.status, answer.body) == (413, b"Number of object-backed segments must be <= 2")


async def test_inline_data_have_a_limit_of_their_own(cluster: MemoryCluster, tmp_path: Path) -> None:
    limits = LimitsSection(slo_max_manifest_segments=3, slo_max_inline_segments=2)
    async with proxy_of(cluster, tmp_path, limits=limits) as proxy:
        first, *_ = await put_segments(proxy)
        assert (await put_manifest(proxy, [first, inline(b"x"), inline(b"y")])).status == 201
        answer = await put_manifest(proxy, [first, inline(b"x"), inline(b"y"), inline(b"z")])
        assert (answer.status, answer.body) == (413, b"Number of inline data segments must be <= 2")
        answer = await put_manifest(proxy, [first, *[inline(b"x")] * 5])
        assert (answer.status, answer.body) == (413, b"Number of segments must be <= 5")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"[" + b"0," * 4_000_000 + b"0]", 413),
        (b"[" + b"[]," * 2_700_000 + b"[]]", 413),
        (b"[" + b'{"data":"AA=="},' * 500_000 + b'{"path":"/c/s/000"}]', 413),
        (b'["' + b"\\\\" * 4_000_000 + b'"]', 400),
        (b'["' + b'\\"' * 4_000_000 + b'"]', 400),
        (b" " * 8_000_000, 400),
        (b'[{"path":"/c/o","range":"' + b"0-0," * 2_000_000 + b'0-0"}]', 400),
        (b'[{"path":"/c/' + b"%" * 8_000_000 + b'"}]', 400),
        (b'[{"' + b"k" * 8_000_000 + b'":1,"path":"/c/o"}]', 400),
        (("[" + '{"data":"AA=="},' * 200_000 + "0]").encode("utf-16"), 400),
    ],
    ids=["numbers", "lists", "inline data", "backslashes", "quotes", "blanks", "ranges", "name", "key", "UTF-16"],
)
async def test_a_manifest_made_to_cost_much_is_refused_shortly(proxy: Proxy, raw: bytes, status: int) -> None:
    """What takes a parser seconds is refused before it is parsed, and with few bytes."""
    answer = await proxy.call("PUT", "c/big", data=BytesIO(raw), query="multipart-manifest=put")
    assert (answer.status, len(answer.body) < 10_000) == (status, True)


async def test_of_many_wrong_entries_only_the_first_are_told(proxy: Proxy) -> None:
    answer = await put_manifest(proxy, [0] * 2500)
    lines = answer.body.decode().splitlines()
    assert (answer.status, len(lines)) == (400, 101)
    assert lines[:2] == ["Index 0: not a JSON object", "Index 1: not a JSON object"]
    assert lines[-1] == "and 2400 more entries are wrong"


async def test_of_many_missing_segments_only_the_first_are_told(cluster: MemoryCluster, tmp_path: Path) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(slo_max_manifest_segments=2000)) as proxy:
        answer = await put_manifest(proxy, [entry("s/missing")] * 1200)
        assert answer.status == 400
        assert answer.body.count(b"404 Not Found") == 1000
        assert b"Errors Not Shown: 200" in answer.body


async def test_a_large_object_of_large_objects_has_a_largest_size(proxy: Proxy) -> None:
    """Few bytes of manifests could make up more than listings can count."""
    await put_segments(proxy, [bytes(1500)])
    name, status = "s/000", 201
    for level in range(8):
        answer = await put_manifest(proxy, [entry(name)] * 500, name := f"level{level}")
        status = answer.status
        if status != 201:
            break
    assert (status, level) == (413, 4)
    assert answer.body == b"The large object would have 46875000000000000 bytes; the limit is 9007199254740992 bytes"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_manifest_over_the_limit_is_413(cluster: MemoryCluster, tmp_path: Path, chunked: bool) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(slo_max_manifest_size=200)) as proxy:
        fits = json.dumps([entry("s/000")]).encode().ljust(200)

        async def send(body: bytes) -> int:
            async def pieces() -> Any:
                yield body

            data: Any = pieces() if chunked else body
            return (await proxy.call("PUT", "c/big", data=data, query="multipart-manifest=put")).status

        await put_segments(proxy, SEGMENTS[:1])
        assert await send(fits) == 201
        assert await send(fits + b" ") == 413


async def test_small_segments_are_refused_but_the_last(cluster: MemoryCluster, tmp_path: Path) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(slo_min_segment_size=20)) as proxy:
        a, b, c, _ = await put_segments(proxy)
        assert (await put_manifest(proxy, [a, b, c])).status == 201
        answer = await put_manifest(proxy, [a, c, b])
        assert (answer.status, answer.body) == (400, b"Index 1: too small; each segment must be at least 20 bytes.")
        answer = await put_manifest(proxy, [a | {"range": "0-18"}, b])
        assert answer.status == 400
        assert b"/c/s/000, Too small; each segment must be at least 20 bytes." in answer.body


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (b"not json", "Manifest must be valid JSON."),
        (b"[" * 100_000, "Manifest must be valid JSON."),
        (b"\xff", "Manifest must be valid JSON."),
        (b"{}", "Manifest must be a list."),
        (["x"], "Index 0: not a JSON object"),
        ([{"etag": "x"}], "Index 0: expected keys to include one of 'path' or 'data'"),
        ([entry("s/000", color="red")], 'Index 0: extraneous keys "color"'),
        ([inline(b"x") | {"etag": "y"}], 'Index 0: extraneous keys "etag"'),
        ([{"path": 5}], 'Index 0: "path" must be a string'),
        ([{"path": "/c"}], "Index 0: path does not refer to an object"),
        ([{"path": "/c//"}], "Index 0: path does not refer to an object"),
        ([{"path": "/c/" + "o" * 1025}], "Index 0: invalid path: Object name length"),
        ([{"path": "/c/\ud800"}], "Index 0: invalid path"),
        ([{"path": "/c/a\0b"}], "Index 0: invalid path"),
        ([entry("s/000", etag=5)], 'Index 0: "etag" must be a string or null'),
        ([entry("s/000", size_bytes="many")], "Index 0: invalid size_bytes"),
        ([entry("s/000", size_bytes=-1)], "Index 0: invalid size_bytes"),
        ([entry("s/000", size_bytes=True)], "Index 0: invalid size_bytes"),
        ([entry("s/000", size_bytes=0), entry("s/001")], "Index 0: too small; each segment must be at least 1 byte."),
        ([entry("big")], "Index 0: manifest must not include itself as a segment"),
        ([entry("s/000", range="x")], "Index 0: invalid range"),
        ([entry("s/000", range=5)], "Index 0: invalid range"),
        ([entry("s/000", range="0-1,3-4")], "Index 0: multiple ranges (only one allowed)"),
        ([entry("s/000", size_bytes=1500, range="1500-")], "Index 0: unsatisfiable range"),
        ([entry("s/000"), {"data": "***"}], "Index 1: data must be valid base64"),
        ([entry("s/000"), {"data": "a"}], "Index 1: data must be valid base64"),
        ([entry("s/000"), {"data": 7}], "Index 1: data must be valid base64"),
        ([entry("s/000"), {"data": ""}], "Index 1: too small; each segment must be at least 1 byte."),
        ([inline(b"x")], "Inline data segments require at least one object-backed segment."),
    ],
)
async def test_bad_manifests_say_what_is_wrong(proxy: Proxy, entries: Any, message: str) -> None:
    await put_segments(proxy)
    answer = await put_manifest(proxy, entries)
    assert answer.status == 400
    assert message in answer.body.decode()
    assert (await proxy.call("HEAD", "c/big")).status == 404


async def test_all_bad_entries_are_named(proxy: Proxy) -> None:
    answer = await put_manifest(proxy, ["x", {}, {"path": "y"}])
    assert [line[:8] for line in answer.body.decode().splitlines()] == ["Index 0:", "Index 1:", "Index 2:"]


async def problems(proxy: Proxy, accept: str | None) -> tuple[int, str, bytes]:
    first, second, *_ = await put_segments(proxy)
    entries = [
        first | {"etag": "0" * 32, "size_bytes": 7},
        second,
        entry("no<where"),
        {"path": "/absent/o"},
        entry("s/002", range="5-6"),
    ]
    answer = await put_manifest(proxy, entries, headers={"Accept": accept} if accept else None)
    return answer.status, answer.headers["Content-Type"], answer.body


PROBLEMS = [
    ("/c/s/000", "Size Mismatch"),
    ("/c/s/000", "Etag Mismatch"),
    ("/c/no%3Cwhere", "404 Not Found"),
    ("/absent/o", "404 Not Found"),
    ("/c/s/002", "Unsatisfiable Range"),
]


@pytest.mark.parametrize("accept", [None, "text/plain", "image/png"])
async def test_problems_as_text(proxy: Proxy, accept: str | None) -> None:
    status, kind, body = await problems(proxy, accept)
    assert (status, kind) == (400, "text/plain; charset=utf-8")
    assert body.decode() == "Errors:\n" + "".join(f"{name}, {text}\n" for name, text in PROBLEMS)


async def test_problems_as_json(proxy: Proxy) -> None:
    status, kind, body = await problems(proxy, "application/json")
    assert (status, kind) == (400, "application/json; charset=utf-8")
    assert json.loads(body) == {"Errors": [list(problem) for problem in PROBLEMS]}


@pytest.mark.parametrize("accept", ["application/xml", "text/xml"])
async def test_problems_as_xml(proxy: Proxy, accept: str) -> None:
    status, kind, body = await problems(proxy, accept)
    assert (status, kind) == (400, f"{accept}; charset=utf-8")
    root = ElementTree.fromstring(body)
    assert root.tag == "upload"
    assert [(o.findtext("name"), o.findtext("status")) for o in root.iter("object")] == PROBLEMS


async def test_segments_that_can_not_be_asked_for_are_503(proxy: Proxy) -> None:
    entries = await put_segments(proxy)
    await proxy.call("PUT", "c/other", data=b"")
    with proxy.cluster.down(*proxy.cluster.devices):
        answer = await put_manifest(proxy, entries)
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    assert b"/c/s/000, 503 Service Unavailable" in answer.body


async def test_segments_are_asked_for_a_few_at_a_time_and_each_once(cluster: MemoryCluster, tmp_path: Path) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(slo_concurrency=3)) as proxy:
        entries = await put_segments(proxy, [b"x"] * 12)
        asked: list[str] = []
        now = most = 0
        head = cluster.objects.head

        async def counted(path: Any, *arguments: Any) -> Any:
            nonlocal now, most
            asked.append(path.obj)
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            try:
                return await head(path, *arguments)
            finally:
                now -= 1

        cluster.objects.head = counted  # type: ignore[method-assign,assignment]
        assert (await put_manifest(proxy, entries * 2)).status == 201
    assert sorted(asked) == [f"s/{number:03}" for number in range(12)]
    assert most == 3


async def test_the_clients_etag_is_the_wholes(proxy: Proxy) -> None:
    entries = await put_segments(proxy)
    assert (await put_manifest(proxy, entries, headers={"ETag": f'"{ETAG}"'})).status == 201
    assert (await put_manifest(proxy, entries, headers={"ETag": ETAG})).status == 201
    assert (await put_manifest(proxy, entries, headers={"ETag": "0" * 32})).status == 422


async def test_an_empty_manifest_is_an_empty_object(proxy: Proxy) -> None:
    assert (await put_manifest(proxy, [])).headers["Etag"] == f'"{md5(b"")}"'
    got = await proxy.call("GET", "c/big")
    assert (got.status, got.body, got.headers["X-Static-Large-Object"]) == (200, b"", "True")


async def test_the_last_segment_may_be_empty(proxy: Proxy) -> None:
    first, empty = await put_segments(proxy, [b"x", b""])
    assert (await put_manifest(proxy, [first, empty])).status == 201
    assert (await proxy.call("GET", "c/big")).body == b"x"
    assert (await put_manifest(proxy, [empty, first])).status == 400


async def test_if_none_match_keeps_what_is_there(proxy: Proxy) -> None:
    entries = await put_segments(proxy)
    assert (await put_manifest(proxy, entries, headers={"If-None-Match": "*"})).status == 201
    assert (await put_manifest(proxy, entries, headers={"If-None-Match": "*"})).status == 412


@pytest.mark.parametrize(
    ("method", "query", "headers", "status"),
    [
        ("PUT", "multipart-manifest=get", {}, 400),
        ("PUT", "multipart-manifest=delete", {}, 400),
        ("GET", "multipart-manifest=put", {}, 400),
        ("DELETE", "multipart-manifest=get", {}, 400),
        ("PUT", "heartbeat=on", {}, 400),
        ("PUT", "", {"X-Static-Large-Object": "True"}, 400),
        ("POST", "", {"X-Static-Large-Object": "True"}, 400),
        ("PUT", "", {"Content-Type": "a/b; swift_bytes=5"}, 400),
        ("POST", "", {"Content-Type": "a/b;SWIFT_x=5"}, 400),
    ],
)
async def test_what_makes_no_sense_is_refused(
    proxy: Proxy, method: str, query: str, headers: dict[str, str], status: int
) -> None:
    await put_large(proxy)
    before = await proxy.call("HEAD", "c/big")
    assert (await proxy.call(method, "c/big", headers, b"" if method == "PUT" else None, query)).status == status
    assert (await proxy.call("HEAD", "c/big")).headers["X-Timestamp"] == before.headers["X-Timestamp"]


async def test_internal_headers_of_clients_mean_nothing(proxy: Proxy) -> None:
    forged = {
        "X-Object-Sysmeta-Slo-Etag": "x",
        "X-Object-Sysmeta-X-Static-Large-Object": "True",
        "X-Object-Sysmeta-Slo-Size": "1",
        "X-Backend-Etag": "x",
        "X-Timestamp": "1.00000",
        "X-Manifest-Etag": "x",
    }
    await proxy.call("PUT", "c/plain", forged, b"plain")
    got = await proxy.call("GET", "c/plain")
    assert got.body == b"plain"
    assert got.headers["X-Timestamp"] != "1.00000"
    assert not {"X-Static-Large-Object", "X-Manifest-Etag"} & set(got.headers)
    assert not any(name.startswith(("X-Object-Sysmeta", "X-Backend")) for name in got.headers)


class TestHeartbeat:
    """`heartbeat=on`: 202 at once, the outcome in the body."""

    async def test_success(self, proxy: Proxy) -> None:
        answer = await put_manifest(proxy, await put_segments(proxy), query="&heartbeat=on")
        assert (answer.status, answer.headers["Content-Type"]) == (202, "text/plain; charset=utf-8")
        modified = (await proxy.call("HEAD", "c/big")).headers["Last-Modified"]
        assert answer.body.decode() == (
            f' \r\n\r\nEtag: "{ETAG}"\nLast Modified: {modified}\nResponse Body: \n'
            "Response Status: 201 Created\nErrors:\n"
        )

    async def test_json(self, proxy: Proxy) -> None:
        headers = {"Accept": "application/json"}
        answer = await put_manifest(proxy, await put_segments(proxy), headers=headers, query="&heartbeat=on")
        report = json.loads(answer.body)
        assert report["Response Status"] == "201 Created"
        assert report["Etag"] == f'"{ETAG}"'
        assert report["Errors"] == []

    async def test_xml(self, proxy: Proxy) -> None:
        headers = {"Accept": "text/xml"}
        answer = await put_manifest(proxy, await put_segments(proxy), headers=headers, query="&heartbeat=on")
        root = ElementTree.fromstring(answer.body)
        assert (root.tag, root.findtext("response_status")) == ("upload", "201 Created")

    @pytest.mark.parametrize(
        ("entries", "headers", "status", "failures"),
        [
            ([entry("nowhere")], {}, "400 Bad Request", [["/c/nowhere", "404 Not Found"]]),
            ([{"path": "c/no where"}], {}, "400 Bad Request", [["c/no%20where", "404 Not Found"]]),
            (b"x", {}, "400 Bad Request", []),
            ([entry("s/000")], {"ETag": "0" * 32}, "422 Unprocessable", []),
            ([entry("s/000")], {"If-None-Match": "*"}, "412 Precondition Failed", []),
        ],
    )
    async def test_failures(
        self, proxy: Proxy, entries: Any, headers: dict[str, str], status: str, failures: list[list[str]]
    ) -> None:
        await put_segments(proxy)
        await proxy.call("PUT", "c/big", data=b"was here")
        answer = await put_manifest(
            proxy, entries, headers={"Accept": "application/json"} | headers, query="&heartbeat=on"
        )
        report = json.loads(answer.body)
        assert answer.status == 202
        assert report["Response Status"].startswith(status)
        assert report["Response Body"]
        assert report["Errors"] == failures
        assert (await proxy.call("GET", "c/big")).body == b"was here"

    async def test_white_space_while_it_takes_long(self, cluster: MemoryCluster, tmp_path: Path) -> None:
        limits = LimitsSection(slo_yield_frequency_s=0.01)
        async with proxy_of(cluster, tmp_path, limits=limits) as proxy:
            entries = await put_segments(proxy)
            head, proceed = cluster.objects.head, asyncio.Event()

            async def slow(*arguments: Any) -> Any:
                await proceed.wait()
                return await head(*arguments)

            cluster.objects.head = slow  # type: ignore[method-assign,assignment]
            body = json.dumps(entries).encode()
            async with await proxy.open("PUT", "c/big", data=body, query="multipart-manifest=put&heartbeat=on") as got:
                assert got.status == 202
                assert await asyncio.wait_for(got.content.readexactly(5), 10) == b" " * 5
                proceed.set()
                rest = await got.read()
            assert b"201 Created" in rest
            assert not rest.partition(b"\r\n\r\n")[0].strip()
