"""ETags from MD5 and from xxh3: what the policy and the client's headers make of them, and that all answers agree."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import xxhash
from swiftlet_native import Hasher

from swiftlet.api.http import etags
from swiftlet.api.tests.large import md5, slo_etag
from swiftlet.api.tests.proxy import SMALL, Answer, Proxy, proxy_of
from swiftlet.api.tests.versions import AT_ONCE, enable
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies

POLICIES = Policies(
    [PolicySection(index=0, name="gold", default=True), PolicySection(index=1, name="fast", etag="xxh3")]
)
SIZES = pytest.mark.parametrize("size", [0, 10, SMALL, 5 * SMALL])
LENGTH = pytest.mark.parametrize("with_length", [True, False])
FAST, GOLD = "fast", "c"
"""Containers of the policies with xxh3 and MD5."""


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path, through_front=True, policies=POLICIES) as made:
        assert (await made.call("PUT", FAST, {"X-Storage-Policy": "fast"})).status == 201
        yield made


@pytest.fixture
def md5s(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each body that was hashed, whether its MD5 was computed."""
    made: list[bool] = []

    def hasher(*, md5: bool) -> Hasher:
        made.append(md5)
        return Hasher(md5=md5)

    monkeypatch.setattr(etags, "Hasher", hasher)
    return made


def xxh3(data: bytes) -> str:
    return f"xxh3-{xxhash.xxh3_128_hexdigest(data)}"


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


async def put(
    proxy: Proxy,
    path: str,
    data: bytes,
    given: str | None = None,
    with_length: bool = True,
    more: dict[str, str] | None = None,
) -> Answer:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 700):
            yield data[start : start + 700]

    headers = {"Content-Type": "a/b", **(more or {})} | ({} if given is None else {"ETag": given})
    return await proxy.call("PUT", path, headers, data if with_length else pieces())


async def shown(proxy: Proxy, path: str) -> set[str]:
    """The ETags that the ways to ask for an object give."""
    container, _, name = path.partition("/")
    listing = json.loads((await proxy.call("GET", container, query=f"format=json&prefix={name}")).body)
    answers = [await proxy.call(method, path) for method in ("HEAD", "GET")]
    return {row["hash"] for row in listing if row["name"] == name} | {one.headers["Etag"] for one in answers}


@SIZES
@LENGTH
async def test_without_an_etag_it_is_xxh3_and_no_md5_is_computed(
    proxy: Proxy, md5s: list[bool], size: int, with_length: bool
) -> None:
    data = content(size)
    answer = await put(proxy, "fast/o", data, with_length=with_length)
    assert (answer.status, answer.headers["Etag"], md5s) == (201, xxh3(data), [False])
    assert await shown(proxy, "fast/o") == {xxh3(data)}
    assert (await proxy.call("GET", "fast/o")).body == data


@SIZES
@LENGTH
async def test_an_md5_that_the_client_sends_is_checked_and_stays(
    proxy: Proxy, md5s: list[bool], size: int, with_length: bool
) -> None:
    data = content(size)
    answer = await put(proxy, "fast/o", data, f'"{md5(data).upper()}"', with_length)
    assert (answer.status, answer.headers["Etag"], md5s) == (201, md5(data), [True])
    assert await shown(proxy, "fast/o") == {md5(data)}
    wrong = await put(proxy, "fast/o", b"x" + data, md5(data), with_length)
    assert wrong.status == 422
    assert b"the MD5 of the body is" in wrong.body
    assert (await proxy.call("GET", "fast/o")).body == data


@SIZES
@LENGTH
async def test_an_xxh3_that_the_client_sends_is_checked(
    proxy: Proxy, md5s: list[bool], size: int, with_length: bool
) -> None:
    data = content(size)
    answer = await put(proxy, "fast/o", data, xxh3(data), with_length)
    assert (answer.status, answer.headers["Etag"]) == (201, xxh3(data))
    for given in (xxh3(b"other"), "xxh3-", "xxh3", "0" * 31, "0" * 33, "*", "", "g" * 32):
        wrong = await put(proxy, "fast/o", data, given, with_length)
        assert (wrong.status, b"the ETag of the body is xxh3-" in wrong.body) == (422, True), given
    assert md5s == [False] * 9


@LENGTH
async def test_a_policy_with_md5_takes_no_xxh3(proxy: Proxy, with_length: bool) -> None:
    data = content(2 * SMALL)
    assert (await put(proxy, "c/o", data, xxh3(data), with_length)).status == 422
    answer = await put(proxy, "c/o", data, with_length=with_length)
    assert (answer.status, answer.headers["Etag"]) == (201, md5(data))


async def test_conditions_compare_texts(proxy: Proxy) -> None:
    tag = (await put(proxy, "fast/o", b"0123456789")).headers["Etag"]
    for headers, status in (
        ({"If-Match": f'"{tag}"'}, 200),
        ({"If-Match": tag}, 200),
        ({"If-Match": md5(b"0123456789")}, 412),
        ({"If-None-Match": f'"{tag}"'}, 304),
        ({"If-None-Match": md5(b"0123456789")}, 200),
        ({"If-Range": f'"{tag}"', "Range": "bytes=2-3"}, 206),
        ({"If-Range": f'"{md5(b"0123456789")}"', "Range": "bytes=2-3"}, 200),
    ):
        assert (await proxy.call("GET", "fast/o", headers)).status == status, headers
    assert (await put(proxy, "fast/o", b"new", more={"If-Match": xxh3(b"other")})).status == 412
    assert (await put(proxy, "fast/o", b"new", more={"If-Match": tag})).status == 201


@pytest.mark.parametrize("size", [10, 5 * SMALL])
@pytest.mark.parametrize(
    ("source", "to", "given", "copy_is"),
    [
        ("fast", "fast", False, "xxh3"),
        ("fast", "fast", True, "md5"),
        ("fast", "c", False, "md5"),
        ("fast", "c", True, "md5"),
        ("c", "fast", False, "md5"),
        ("c", "c", False, "md5"),
    ],
)
async def test_a_copy_has_the_etag_of_its_source_if_its_policy_allows_that(
    proxy: Proxy, md5s: list[bool], size: int, source: str, to: str, given: bool, copy_is: str
) -> None:
    data = content(size)
    await put(proxy, f"{source}/o", data, md5(data) if given else None)
    md5s.clear()
    answer = await proxy.call("COPY", f"{source}/o", {"Destination": f"{to}/copy"})
    tag = {"xxh3": xxh3, "md5": md5}[copy_is](data)
    assert (answer.status, answer.headers["Etag"], md5s) == (201, tag, [to == "c"])
    assert await shown(proxy, f"{to}/copy") == {tag}


async def test_a_part_that_is_copied_has_an_etag_of_its_own(proxy: Proxy) -> None:
    await put(proxy, "fast/o", b"0123456789", md5(b"0123456789"))
    part = {"Destination": "fast/copy", "Range": "bytes=2-4"}
    assert (await proxy.call("COPY", "fast/o", part)).headers["Etag"] == xxh3(b"234")
    with_md5 = {"X-Copy-From": "/fast/o", "Range": "bytes=2-4", "ETag": md5(b"234"), "Content-Type": "a/b"}
    assert (await proxy.call("PUT", "fast/copy", with_md5)).headers["Etag"] == md5(b"234")
    whole = {"X-Copy-From": "/fast/o", "ETag": xxh3(b"0123456789"), "Content-Type": "a/b"}
    assert (await proxy.call("PUT", "fast/copy", whole)).headers["Etag"] == xxh3(b"0123456789")
    assert await shown(proxy, "fast/copy") == {xxh3(b"0123456789")}


async def test_manifests_compare_texts_and_the_wholes_etag_is_made_from_them(proxy: Proxy) -> None:
    one, two = b"a" * 1500, b"b" * 20
    first = (await put(proxy, "fast/part1", one)).headers["Etag"]
    second = (await put(proxy, "fast/part2", two, md5(two))).headers["Etag"]

    def manifest(*tags: str) -> bytes:
        return json.dumps([{"path": f"/fast/part{n}", "etag": tag} for n, tag in enumerate(tags, 1)]).encode()

    answer = await proxy.call("PUT", "fast/slo", {}, manifest(first, second), query="multipart-manifest=put")
    assert (answer.status, answer.headers["Etag"]) == (201, f'"{slo_etag(first, second)}"')
    wrong = await proxy.call("PUT", "fast/bad", {}, manifest(md5(one), second), query="multipart-manifest=put")
    assert (wrong.status, b"Etag Mismatch" in wrong.body) == (400, True)
    read = await proxy.call("GET", "fast/slo")
    assert (read.headers["Etag"], read.body) == (f'"{slo_etag(first, second)}"', one + two)
    assert read.headers["X-Manifest-Etag"].startswith("xxh3-")
    row = next(
        row for row in json.loads((await proxy.call("GET", "fast", query="format=json")).body) if row["name"] == "slo"
    )
    assert (row["hash"], row["slo_etag"]) == (read.headers["X-Manifest-Etag"], read.headers["Etag"])
    await proxy.call("PUT", "c/dlo", {"X-Object-Manifest": "fast/part", "Content-Type": "a/b"})
    dynamic = await proxy.call("GET", "c/dlo")
    assert (dynamic.headers["Etag"], dynamic.body) == (f'"{slo_etag(first, second)}"', one + two)


async def test_static_links_compare_texts(proxy: Proxy) -> None:
    tag = (await put(proxy, "fast/o", b"data")).headers["Etag"]
    link = {"X-Symlink-Target": "fast/o", "Content-Type": "a/b"}
    assert (await proxy.call("PUT", "c/bad", {**link, "X-Symlink-Target-Etag": md5(b"data")})).status == 409
    assert (await proxy.call("PUT", "c/link", {**link, "X-Symlink-Target-Etag": tag})).status == 201
    read = await proxy.call("GET", "c/link")
    assert (read.headers["Etag"], read.body) == (tag, b"data")


@pytest.mark.parametrize(("container", "archive", "tag"), [(FAST, GOLD, xxh3), (GOLD, FAST, md5)])
async def test_an_archived_version_keeps_its_etag_whatever_the_archives_policy(
    cluster: MemoryCluster, tmp_path: Path, container: str, archive: str, tag: Callable[[bytes], str]
) -> None:
    async with proxy_of(cluster, tmp_path, policies=POLICIES, versioning=AT_ONCE) as proxy:
        await proxy.call("PUT", FAST, {"X-Storage-Policy": "fast"})
        assert (await proxy.call("POST", container, {"X-Versions-Location": archive})).status == 204
        await put(proxy, f"{container}/o", b"first")
        await put(proxy, f"{container}/o", b"second")
        rows = json.loads((await proxy.call("GET", archive, query="format=json")).body)
        assert [row["hash"] for row in rows] == [tag(b"first")]
        assert await shown(proxy, f"{archive}/{rows[0]['name']}") == {tag(b"first")}
        assert (await proxy.call("DELETE", f"{container}/o")).status == 204
        assert await shown(proxy, f"{container}/o") == {tag(b"first")}


async def test_a_version_keeps_its_etag_when_the_policy_changes(cluster: MemoryCluster, tmp_path: Path) -> None:
    gold = PolicySection(index=0, name="gold", default=True)
    policies = Policies([gold.model_copy(update={"etag": "xxh3"})])
    async with proxy_of(cluster, tmp_path, policies=policies, versioning=AT_ONCE) as proxy:
        await put(proxy, "c/o", b"first")
        await enable(proxy)
        policies.take([gold], lambda _index: True)
        latest = (await put(proxy, "c/o", b"second")).headers["Etag"]
        listed = json.loads((await proxy.call("GET", "c", query="versions&format=json")).body)
        assert [row["hash"] for row in listed] == [latest, xxh3(b"first")]
        answer = await proxy.call("GET", "c/o", query=f"version-id={listed[1]['version_id']}")
        assert (answer.status, answer.headers["Etag"], answer.body) == (200, xxh3(b"first"), b"first")
        assert (await proxy.call("PUT", "c/o", query=f"version-id={listed[1]['version_id']}")).status == 201
        assert await shown(proxy, "c/o") == {xxh3(b"first")}


async def test_info_tells_the_policies_etags(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as response:
        policies = json.loads(await response.read())["swift"]["policies"]
    assert [(one["name"], one["etag"]) for one in policies] == [("gold", "md5"), ("fast", "xxh3")]


async def test_a_change_counts_for_what_is_written_from_then_on(cluster: MemoryCluster, tmp_path: Path) -> None:
    policies = Policies([PolicySection(index=0, name="gold", default=True)])
    async with proxy_of(cluster, tmp_path, policies=policies) as proxy:
        await put(proxy, "c/before", b"data")
        policies.take([PolicySection(index=0, name="gold", default=True, etag="xxh3")], lambda _index: True)
        await put(proxy, "c/after", b"data")
        assert await shown(proxy, "c/before") == {md5(b"data")}
        assert await shown(proxy, "c/after") == {xxh3(b"data")}


@pytest.mark.parametrize("seed", range(10))
async def test_all_answers_show_the_same_etag(proxy: Proxy, seed: int) -> None:
    """Whatever the policy and the headers."""
    chance = random.Random(seed)
    for turn in range(6):
        container, data = chance.choice([FAST, GOLD]), content(chance.choice([0, 1, 240, 241, SMALL, SMALL + 1, 9000]))
        name, tags = f"{container}/o{turn}", [None, md5(data), f'"{md5(data)}"', md5(data).upper()]
        given = chance.choice([*tags, xxh3(data), f'"{xxh3(data)}"'] if container == FAST else tags)
        extra = chance.choice([{}, {"X-Object-Meta-Color": "red"}, {"X-Delete-After": "1000"}, {"If-None-Match": "*"}])
        answer = await put(proxy, name, data, given, chance.random() < 0.5, extra)
        assert answer.status == 201
        tag = answer.headers["Etag"]
        assert given is None or tag == given.strip('"').lower()
        if chance.random() < 0.5:
            assert (await proxy.call("POST", name, {"X-Object-Meta-Later": "yes"})).status == 202
        assert await shown(proxy, name) == {tag}
        same = await proxy.call("COPY", name, {"Destination": f"{container}/copy{turn}"})
        assert {same.headers["Etag"]} | await shown(proxy, f"{container}/copy{turn}") == {tag}
        other = GOLD if container == FAST else FAST
        moved = await proxy.call("COPY", name, {"Destination": f"{other}/moved{turn}"})
        assert await shown(proxy, f"{other}/moved{turn}") == {moved.headers["Etag"]}
        assert (await proxy.call("GET", f"{other}/moved{turn}")).body == data
