"""A deprecated policy: no new containers, and those that have it go on, as with OpenStack Swift."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests import proxy as proxies
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.api.tests.versions import AT_ONCE, put_version
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies, check_policies

GOLD = PolicySection(index=0, name="gold", default=True)
SILVER = PolicySection(index=1, name="Silver")
DEPRECATED = SILVER.model_copy(update={"deprecated": True})
NAMED = {"X-Storage-Policy": "silver"}


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """With a container `old` of the policy silver, which is deprecated afterwards."""
    monkeypatch.setattr(proxies, "POLICIES", Policies([GOLD, SILVER]))
    async with proxy_of(cluster, tmp_path, versioning=AT_ONCE) as made:
        assert (await made.call("PUT", "old", {**NAMED, "X-Versions-Enabled": "true"})).status == 201
        assert made.api.options.policies.take([GOLD, DEPRECATED], lambda _: False)
        yield made


async def test_no_new_container_gets_it(proxy: Proxy) -> None:
    answer = await proxy.call("PUT", "new", NAMED)
    assert (answer.status, answer.body) == (400, b"Storage Policy 'Silver' is deprecated")
    assert (await proxy.call("HEAD", "new")).status == 404
    assert (await proxy.call("PUT", "new")).status == 201
    assert (await proxy.call("HEAD", "new")).headers["X-Storage-Policy"] == "gold"


async def test_nor_may_it_be_named_for_one_that_has_it(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "old", NAMED)).status == 400
    assert (await proxy.call("PUT", "old", {"X-Container-Meta-A": "b"})).status == 202


async def test_containers_that_have_it_go_on(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "old/o", data=b"text")).status == 201
    assert (await proxy.call("GET", "old/o")).body == b"text"
    head = await proxy.call("HEAD", "old")
    assert head.headers["X-Storage-Policy"] == "Silver"
    assert (await proxy.call("DELETE", "old/o")).status == 204


async def test_new_hidden_containers_for_versions_have_the_default_policy(proxy: Proxy) -> None:
    await put_version(proxy, b"1", "old/o")
    await put_version(proxy, b"2", "old/o")
    assert (await proxy.cluster.listings.container_info(ACCOUNT, "old")).policy == 1
    assert (await proxy.cluster.listings.container_info(ACCOUNT, "\0versions\0old")).policy == 0


async def test_it_is_left_out_where_policies_are_offered(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as response:
        policies = json.loads(await response.read())["swift"]["policies"]
    assert policies == [{"name": "gold", "aliases": "gold", "etag": "md5", "default": True}]
    unknown = await proxy.call("PUT", "new", {"X-Storage-Policy": "bronze"})
    assert unknown.status == 400
    assert b"Silver" not in unknown.body


async def test_its_totals_are_still_told(proxy: Proxy) -> None:
    assert proxy.api.options.policies.name_of(1) == "Silver"
    refused = await proxy.call("PUT", "new", {"X-Storage-Policy": "SILVER"})
    assert refused.body == b"Storage Policy 'Silver' is deprecated"


def test_the_default_is_not_deprecated() -> None:
    with pytest.raises(ValueError, match="policy gold is the default and deprecated"):
        check_policies([GOLD.model_copy(update={"deprecated": True}), SILVER])
