"""ETags of objects that the front stores in a policy with `etag: xxh3`: the same as Python's in every answer."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest
import xxhash

from swiftlet.api.tests.large import md5
from swiftlet.api.tests.proxy import Answer
from swiftlet.front.tests import served
from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, fronted_proxy
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies


@pytest.fixture
def policies() -> Policies:
    return Policies([PolicySection(index=0, name="gold", default=True, etag="xxh3")])


@pytest.fixture
async def fronted(cluster: MemoryCluster, tmp_path: Directory, policies: Policies) -> AsyncIterator[FrontedProxy]:
    async with fronted_proxy(cluster, tmp_path, policies=policies) as made:
        yield made


def xxh3(data: bytes) -> str:
    return f"xxh3-{xxhash.xxh3_128_hexdigest(data)}"


async def hot(fronted: FrontedProxy, data: bytes, given: str | None = None, **headers: str) -> Answer:
    """The front's answer to a PUT of `c/o`: asked until it is the one that answers."""
    headers = {"Content-Type": "a/b", **headers} | ({} if given is None else {"ETag": given})
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = fronted.answered
            answer = await fronted.proxy.call("PUT", "c/o", headers, io.BytesIO(data))
            if fronted.answered > before:
                return answer
            assert answer.status == 201, answer
            await asyncio.sleep(0.01)


async def shown(fronted: FrontedProxy) -> set[str]:
    """What all ways to ask for `c/o` show, by the front and by Python."""
    rows = json.loads((await fronted.proxy.call("GET", "c", query="format=json")).body)
    cold = await fronted.proxy.call("GET", "c/o", query="x=y")
    answers = [await fronted.read(), await fronted.read(method="HEAD"), cold]
    copy = await fronted.proxy.call("COPY", "c/o", {"Destination": "c/copy"})
    return {row["hash"] for row in rows if row["name"] == "o"} | {one.headers["Etag"] for one in [*answers, copy]}


@pytest.mark.parametrize("size", [0, 1, 240, 241, 65_536])
async def test_it_is_xxh3(fronted: FrontedProxy, size: int) -> None:
    data = random.Random(size).randbytes(size)
    answer = await hot(fronted, data)
    assert (answer.status, answer.headers["Etag"]) == (201, xxh3(data))
    assert await shown(fronted) == {xxh3(data)}
    answer = await hot(fronted, data, md5(data))
    assert (answer.status, answer.headers["Etag"]) == (201, md5(data))
    assert await shown(fronted) == {md5(data)}


@pytest.mark.parametrize("size", [1 << 20, (2 << 20) + 1])
async def test_it_is_xxh3_of_long_bodies(fronted: FrontedProxy, size: int) -> None:
    data = random.Random(size).randbytes(size)
    for given, expected in ((None, xxh3(data)), (md5(data), md5(data))):
        answer = await hot(fronted, data, given)
        assert (answer.status, answer.headers["Etag"]) == (201, expected)
        assert (await fronted.proxy.call("GET", "c/o", query="x=y")).headers["Etag"] == expected


async def test_bodies_whose_md5_nobody_needs_may_be_longer(
    cluster: MemoryCluster, tmp_path: Directory, policies: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 16 MiB the front stores both kinds, up to 32 those without MD5; Python stores the others."""
    monkeypatch.setattr(served, "POOL_BYTES", 128 << 20)
    data = random.Random(3).randbytes((32 << 20) + 1)
    async with fronted_proxy(cluster, tmp_path, policies=policies) as fronted:
        await hot(fronted, b"")
        for size, by_xxh3, by_md5 in ((16, True, True), (17, True, False), (32, True, False), (33, False, False)):
            body = data[: min(size << 20, len(data))]
            for given, is_by_front in ((None, by_xxh3), (md5(body), by_md5)):
                before = await fronted.noted()
                headers = {"Content-Type": "a/b"} | ({} if given is None else {"ETag": given})
                answer = await fronted.proxy.call("PUT", "c/o", headers, io.BytesIO(body))
                assert (answer.status, answer.headers["Etag"]) == (201, given or xxh3(body))
                assert await fronted.noted() == before + is_by_front, (size, given)
                read = await fronted.proxy.call("GET", "c/o", {"Connection": "close"}, query="x=cold")
                assert read.body == body


async def test_what_differs_is_refused(fronted: FrontedProxy) -> None:
    await hot(fronted, b"data")
    headers = {"Content-Type": "a/b"}
    for given in (md5(b"other"), xxh3(b"other"), "xxh3-", "none"):
        assert (await fronted.proxy.call("PUT", "c/o", {**headers, "ETag": given}, b"new")).status == 422, given
    assert await shown(fronted) == {xxh3(b"data")}
    answer = await fronted.proxy.call("PUT", "c/o", {**headers, "ETag": xxh3(b"new")}, b"new")
    assert (answer.status, answer.headers["Etag"]) == (201, xxh3(b"new"))


async def test_a_change_of_the_policy_reaches_the_front(fronted: FrontedProxy, policies: Policies) -> None:
    assert (await hot(fronted, b"data")).headers["Etag"] == xxh3(b"data")
    policies.take([PolicySection(index=0, name="gold", default=True)], lambda _index: True)
    async with asyncio.timeout(PATIENCE_S):
        while (await hot(fronted, b"data")).headers["Etag"] != md5(b"data"):
            pass
    assert await shown(fronted) == {md5(b"data")}
