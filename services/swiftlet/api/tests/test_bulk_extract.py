"""Archives over HTTP: what becomes an object, what the report says, and every way in which an archive is bad."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import io
import json
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path as Directory
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from swiftlet.api.tests.proxy import SMALL, Answer, Proxy, proxy_of
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings import LimitsSection
from swiftlet.settings.bulk import BulkSection

JSON = {"Accept": "application/json"}
BIG = bytes(range(256)) * 20
assert len(BIG) > SMALL
LIMITS = {"client_timeout_s": 10.0}


def tar(
    files: Sequence[tuple[str, bytes]], pax: Mapping[str, str] | None = None, form: int = tarfile.PAX_FORMAT
) -> bytes:
    """An archive of files with these attributes each."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.pax_headers = dict(pax or {})
            archive.addfile(info, io.BytesIO(data))
    return raw.getvalue()


async def extract(
    proxy: Proxy, data: Any, path: str = "c", kind: str = "tar", headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    answer = await proxy.call("PUT", path, {**JSON, **(headers or {})}, data, f"extract-archive={kind}")
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"].startswith("application/json")
    found: dict[str, Any] = json.loads(answer.body)
    return found


def report(created: int, status: str = "201 Created", body: str = "", errors: Sequence[Any] = ()) -> dict[str, Any]:
    return {
        "Number Files Created": created,
        "Response Status": status,
        "Response Body": body,
        "Errors": [list(error) for error in errors],
    }


async def names(proxy: Proxy, container: str = "c") -> list[str]:
    return [row["name"] for row in json.loads((await proxy.call("GET", container, query="format=json")).body)]


@pytest.mark.parametrize(
    ("kind", "pack"),
    [("tar", bytes), ("tar.gz", gzip.compress), (".TAR.GZ", gzip.compress), ("tar.bz2", bz2.compress)],
)
async def test_files_become_objects(proxy: Proxy, kind: str, pack: Any) -> None:
    data = tar([("a.txt", b"small"), ("./dir/b.bin", BIG), ("/\u00e9 +%.txt", b""), ("x" * 300, b"long")])
    assert await extract(proxy, pack(data), kind=kind, headers={"X-Detect-Content-Type": "yes"}) == report(4)
    assert await names(proxy) == ["a.txt", "dir/b.bin", "x" * 300, "\u00e9 +%.txt"]
    assert (await proxy.call("GET", "c/dir/b.bin")).body == BIG
    shown = await proxy.call("GET", "c/a.txt")
    assert (shown.body, shown.headers["Content-Type"]) == (b"small", "text/plain")


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
async def test_all_kinds_of_archives(proxy: Proxy, form: int) -> None:
    name = "d" * 90 + "/" + "f" * 60
    assert await extract(proxy, tar([(name, b"1"), ("b", b"2")], form=form)) == report(2)
    assert await names(proxy) == ["b", name]


async def test_where_it_goes(proxy: Proxy) -> None:
    data = tar([("one/a", b"1"), ("two/b", b"2"), ("ignored", b"3")])
    assert await extract(proxy, data, path="") == report(2)
    assert await names(proxy, "one") == ["a"]
    assert await names(proxy, "two") == ["b"]
    assert await extract(proxy, data, path="c/pre/fix/") == report(3)
    assert await names(proxy) == ["pre/fix/ignored", "pre/fix/one/a", "pre/fix/two/b"]
    assert await extract(proxy, data, path="new") == report(3)
    assert await names(proxy, "new") == ["ignored", "one/a", "two/b"]


async def test_chunked_and_byte_by_byte(proxy: Proxy) -> None:
    async def pieces(data: bytes, step: int) -> AsyncIterator[bytes]:
        for start in range(0, len(data), step):
            yield data[start : start + step]

    data = tar([("a", b"1"), ("b", BIG)])
    assert await extract(proxy, pieces(data, 700)) == report(2)
    assert await extract(proxy, pieces(gzip.compress(data), 7), kind="tar.gz") == report(2)
    assert (await proxy.call("GET", "c/b")).body == BIG


async def test_a_client_that_waits_to_be_asked(proxy: Proxy) -> None:
    data = tar([("a", b"1")])
    assert await extract(proxy, data, headers={"Expect": "100-continue"}) == report(1)


async def test_only_regular_files(proxy: Proxy) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, kind in [
            ("dir", tarfile.DIRTYPE),
            ("link", tarfile.SYMTYPE),
            ("hard", tarfile.LNKTYPE),
            ("fifo", tarfile.FIFOTYPE),
            ("device", tarfile.CHRTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo("file")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    assert await extract(proxy, raw.getvalue()) == report(1)
    assert await names(proxy) == ["file"]


async def test_names_lead_nowhere(proxy: Proxy) -> None:
    data = tar([("../../d/escape", b"1"), ("/etc/passwd", b"2"), ("a/../../b", b"3"), ("\\..\\x", b"4")])
    assert await extract(proxy, data) == report(4)
    assert await names(proxy) == ["../../d/escape", "\\..\\x", "a/../../b", "etc/passwd"]


async def test_attributes(proxy: Proxy) -> None:
    pax = {
        "SCHILY.xattr.user.mime_type": "application/x-cat",
        "SCHILY.xattr.user.meta.lunch": "burger and \u00e9",
        "LIBARCHIVE.xattr.user.meta.Dinner": "ziti",
        "SCHILY.xattr.user.stuff": "whee",
        "SCHILY.xattr.security.selinux": "x",
        "comment": "x",
    }
    headers = {"X-Object-Meta-All": "yes", "X-Object-Meta-Lunch": "none", "X-Delete-After": "100"}
    assert await extract(proxy, tar([("a.txt", b"1")], pax), headers=headers) == report(1)
    shown = (await proxy.call("HEAD", "c/a.txt")).headers
    assert shown["Content-Type"] == "application/x-cat"
    assert shown["X-Object-Meta-Lunch"].encode("utf-8", "surrogateescape").decode() == "burger and \u00e9"
    assert shown["X-Object-Meta-Dinner"] == "ziti"
    assert shown["X-Object-Meta-All"] == "yes"
    assert shown["X-Delete-At"] == "0000001100"
    assert not [name for name in shown if "Stuff" in name or "Selinux" in name]


async def test_content_types(proxy: Proxy) -> None:
    data = tar([("a.html", b"1")])
    await extract(proxy, data, headers={"Content-Type": "text/x-all"})
    assert (await proxy.call("HEAD", "c/a.html")).headers["Content-Type"] == "text/x-all"
    await extract(proxy, data, headers={"Content-Type": "application/x-tar", "X-Detect-Content-Type": "true"})
    assert (await proxy.call("HEAD", "c/a.html")).headers["Content-Type"] == "text/html"


@pytest.mark.parametrize(
    "pax",
    [
        {"SCHILY.xattr.user.meta.a": "b\r\nX-Object-Meta-Evil: yes"},
        {"SCHILY.xattr.user.meta.a\r\nX-Evil": "b"},
        {"SCHILY.xattr.user.meta.": "b"},
        {"SCHILY.xattr.user.meta.a b": "c"},
        {"SCHILY.xattr.user.meta.\u00e9": "c"},
        {"SCHILY.xattr.user.mime_type": "text/plain\nX-Evil: yes"},
        {"SCHILY.xattr.user.mime_type": "text/plain;swift_bytes=5"},
        {"SCHILY.xattr.user.meta.a": "x" * 257},
    ],
)
async def test_attributes_that_could_be_no_headers(proxy: Proxy, pax: dict[str, str]) -> None:
    found = await extract(proxy, tar([("a", b"1")], pax))
    assert found == report(0, "400 Bad Request", errors=[("c/a", "400 Bad Request")])
    assert await names(proxy) == []


@pytest.mark.parametrize("pax", [{"SCHILY.xattr.user.meta.X": "1"}, {"SCHILY.xattr.trusted.x-backend-y": "1"}])
async def test_attributes_reach_no_header_but_metadata(proxy: Proxy, pax: dict[str, str]) -> None:
    assert (await extract(proxy, tar([("a", b"1")], pax)))["Number Files Created"] == 1
    shown = (await proxy.call("HEAD", "c/a")).headers
    assert "X-Backend-Y" not in shown


async def test_some_fail_and_others_do_not(proxy: Proxy) -> None:
    data = tar([("ok", b"1"), ("n" * 1100, b"2"), ("fine", b"3")])
    found = await extract(proxy, data)
    assert (found["Number Files Created"], found["Response Status"]) == (2, "400 Bad Request")
    assert found["Errors"] == [["c/" + "n" * 1100, "400 Bad Request"]]
    assert await names(proxy) == ["fine", "ok"]


async def test_a_name_that_is_not_utf8(proxy: Proxy) -> None:
    data = tar([("bad\udcff", b"1")], form=tarfile.GNU_FORMAT)
    assert await extract(proxy, data) == report(0, "400 Bad Request", errors=[("c/bad%FF", "412 Precondition Failed")])


async def test_a_file_that_is_too_large(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(max_file_size=1000)) as proxy:
        found = await extract(proxy, tar([("a", b"x" * 1001), ("b", b"2")]))
    assert found == report(1, "400 Bad Request", errors=[("c/a", "413 Request Entity Too Large")])


async def test_devices_away(proxy: Proxy) -> None:
    with proxy.cluster.down(*proxy.cluster.devices):
        found = await extract(proxy, tar([("a", b"1")]))
    assert found == report(0, "502 Bad Gateway", errors=[("c/a", "503 Service Unavailable")])


@pytest.mark.parametrize(
    ("kind", "data", "body"),
    [
        ("tar", b"", "Invalid Tar File: No Valid Files"),
        ("tar", bytes(1024), "Invalid Tar File: No Valid Files"),
        ("tar", b"no archive at all" * 100, "Invalid Tar File: bad header: "),
        ("tar", b"short", "Invalid Tar File: unexpected end of data"),
        ("tar.gz", b"no archive at all" * 100, "Invalid Tar File: Error -3 while decompressing data"),
        ("tar.bz2", b"no archive at all" * 100, "Invalid Tar File: Invalid data stream"),
        ("tar.gz", gzip.compress(tar([("a", b"x" * 100)]))[:60], "Invalid Tar File: "),
        ("tar", tar([("a", BIG)])[:2000], "Invalid Tar File: unexpected end of data"),
    ],
    ids=["empty", "zeros", "text", "short", "no-gzip", "no-bzip2", "gzip-cut-off", "cut-off"],
)
async def test_what_is_no_archive(proxy: Proxy, kind: str, data: bytes, body: str) -> None:
    found = await extract(proxy, data, kind=kind)
    assert (found["Number Files Created"], found["Response Status"]) == (0, "400 Bad Request")
    assert found["Response Body"].startswith(body)
    assert await names(proxy) == []


async def test_what_came_before_the_fault_stays(proxy: Proxy) -> None:
    data = tar([("a", b"1"), ("b", BIG)])
    found = await extract(proxy, data[: 512 * 4])
    assert (found["Number Files Created"], found["Response Status"]) == (1, "400 Bad Request")
    assert await names(proxy) == ["a"]


def headers_of(answer: Answer) -> str:
    return answer.headers["Content-Type"]


async def test_formats_of_reports(proxy: Proxy) -> None:
    data = tar([("a<&", b"1"), ("n" * 1100, b"2")])
    text = await proxy.call("PUT", "c", {}, data, "extract-archive=tar")
    assert headers_of(text).startswith("text/plain")
    assert text.body.decode().strip() == (
        f"Number Files Created: 1\nResponse Body: \nResponse Status: 400 Bad Request\nErrors:\n"
        f"c/{'n' * 1100}, 400 Bad Request"
    )
    for kind in ("application/xml", "text/xml"):
        xml = await proxy.call("PUT", "c", {"Accept": kind}, data, "extract-archive=tar")
        assert headers_of(xml).startswith(kind)
        assert xml.body.startswith(b'<?xml version="1.0"')
        root = ET.fromstring(xml.body.decode().split("?>", 1)[1].strip())
        assert root.tag == "extract"
        assert root.findtext("number_files_created") == "1"
        assert root.findtext("errors/object/status") == "400 Bad Request"
    refused = await proxy.call("PUT", "c", {"Accept": "image/png"}, data, "extract-archive=tar")
    assert refused.status == 406


async def test_requests_that_are_refused_at_once(proxy: Proxy) -> None:
    data = tar([("a", b"1")])
    answer = await proxy.call("PUT", "c", {}, data, "extract-archive=zip")
    assert (answer.status, answer.body.startswith(b"Unsupported archive format")) == (400, True)
    answer = await proxy.anonymous("PUT", "c", {}, data, "extract-archive=tar")
    assert answer.status == 401
    assert "WWW-Authenticate" in answer.headers
    assert (await proxy.anonymous("PUT", "c", {"X-Auth-Token": "bad"}, data, "extract-archive=tar")).status == 401
    assert (await proxy.call("POST", "c", {}, data, "extract-archive=tar")).status == 204, "an ordinary POST"


async def test_without_a_length(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    token = proxy.token["X-Auth-Token"]
    request = f"PUT /v1/{ACCOUNT}/c?extract-archive=tar HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {token}\r\n\r\n"
    writer.write(request.encode())
    assert b" 411 " in await reader.readline()
    writer.close()


async def test_rights_are_those_at_each_name(proxy: Proxy) -> None:
    await proxy.call("PUT", "open", {"X-Container-Write": "other:friend"})
    data = tar([("open/a", b"1"), ("c/b", b"2"), ("new/c", b"3")])
    token = proxy.token_of("other:friend", Role.USER)
    found = await extract(proxy, data, path="", headers=token)
    assert (found["Number Files Created"], found["Response Status"]) == (1, "400 Bad Request")
    assert found["Errors"] == [
        ["c/b", "403 Forbidden"],
        [f"{ACCOUNT}/new", "403 Forbidden"],
        ["new/c", "403 Forbidden"],
    ]
    assert await names(proxy, "open") == ["a"]
    assert (await proxy.call("HEAD", "new")).status == 404


def limited(**limits: Any) -> dict[str, Any]:
    return {"bulk": BulkSection(**limits)}


async def test_too_many_containers(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, **limited(max_containers_per_extraction=1)) as proxy:
        data = tar([("c/a", b"1"), ("one/a", b"1"), ("one/b", b"1"), ("two/a", b"1"), ("c/z", b"1")])
        found = await extract(proxy, data, path="")
        assert found == report(3, "400 Bad Request", "More than 1 containers to create from tar.")
        assert (await proxy.call("HEAD", "two")).status == 404


async def test_too_many_failures(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, **limited(max_failed_extractions=2)) as proxy:
        bad = "n" * 1100
        found = await extract(proxy, tar([(bad, b""), ("ok", b""), (bad, b""), ("not reached", b"")]))
        assert (found["Number Files Created"], found["Response Status"]) == (1, "400 Bad Request")
        assert found["Response Body"] == "Max extraction failures exceeded"
        assert len(found["Errors"]) == 2


async def test_too_many_entries(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, **limited(max_files_per_extraction=2)) as proxy:
        found = await extract(proxy, tar([("a", b""), ("b", b""), ("c", b"")]))
        assert (found["Number Files Created"], found["Response Status"]) == (2, "413 Request Entity Too Large")


@pytest.mark.parametrize(("kind", "pack"), [("tar", bytes), ("tar.gz", gzip.compress), ("tar.bz2", bz2.compress)])
async def test_an_archive_that_is_too_large(cluster: MemoryCluster, tmp_path: Directory, kind: str, pack: Any) -> None:
    async with proxy_of(cluster, tmp_path, **limited(max_extracted_bytes=300_000)) as proxy:
        found = await extract(proxy, pack(tar([("a", b"1"), ("b", bytes(500_000))])), kind=kind)
        assert found["Response Status"] == "413 Request Entity Too Large"
        assert "expands to more than 300000 bytes" in found["Response Body"]
        assert "b" not in await names(proxy)


@pytest.mark.parametrize(("kind", "pack"), [("tar.gz", gzip.compress), ("tar.bz2", bz2.compress)])
async def test_a_decompression_bomb(
    cluster: MemoryCluster, tmp_path: Directory, monkeypatch: pytest.MonkeyPatch, kind: str, pack: Any
) -> None:
    monkeypatch.setattr("swiftlet.api.http.decompression.FREE_BYTES", 1 << 20)
    async with proxy_of(cluster, tmp_path, **limited(max_compression_ratio=100)) as proxy:
        found = await extract(proxy, pack(tar([("bomb", bytes(20 << 20))])), kind=kind)
        assert found["Response Status"] == "413 Request Entity Too Large"
        assert "expands to more than 100 times its size" in found["Response Body"]
        assert await names(proxy) == []


async def test_quotas_count(proxy: Proxy) -> None:
    await proxy.call("POST", "c", {"X-Container-Meta-Quota-Bytes": "10"})
    found = await extract(proxy, tar([("a", b"x" * 20), ("b", b"2")]))
    assert found == report(1, "400 Bad Request", errors=[("c/a", "413 Request Entity Too Large")])


async def test_white_space_while_it_goes_on(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(slo_yield_frequency_s=0.05)) as proxy:
        go_on = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            data = tar([("a", b"1")])
            yield data[:512]
            await go_on.wait()
            yield data[512:]

        response = await proxy.open("PUT", "c", JSON, slowly(), "extract-archive=tar")
        async with response:
            beginning = await asyncio.wait_for(response.content.readexactly(3), 10)
            assert beginning == b"   "
            go_on.set()
            assert json.loads(await response.read()) == report(1)


async def test_info(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as response:
        shown = await response.json()
    assert shown["bulk_upload"] == {"max_containers_per_extraction": 10000, "max_failed_extractions": 1000}
