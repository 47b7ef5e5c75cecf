"""Grants that go on without a decision: only while all that they rest on is known to be what it was."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path as Directory

import pytest

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.auth.identity import Role
from swiftlet.front.deciding import VALID_S, WRITE_VALID_S, Deciding, Grant
from swiftlet.front.proxy_front import Holder
from swiftlet.front.tests.conftest import FrontedProxy, until
from swiftlet.front.tests.test_undecided import Decisions
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.quota import Quotas
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies

PREFIX = f"/v1/{ACCOUNT}/c/"
WRITES = pytest.mark.parametrize("write", [False, True])


class Times:
    """The time of a proxy's caches, which goes on when it is told to."""

    def __init__(self, api: SwiftApi) -> None:
        self.now_s = time.monotonic()
        for cache in (api.containers._cache, api.accounts._cache):
            cache._clock = cache._known._clock = cache._silent._clock = lambda: self.now_s


@pytest.fixture
def policies() -> Policies:
    return Policies([PolicySection(index=0, name="gold", default=True)])


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory, policies: Policies) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path, policies=policies) as made:
        yield made


async def decided(proxy: Proxy, write: bool, token: str | None = None) -> tuple[Deciding, str, Grant]:
    """A grant whose grounds are known: what it rests on was cached when it was decided."""
    deciding, token = Deciding(proxy.api), token or proxy.token["X-Auth-Token"]
    await deciding.decide(token, PREFIX, write)
    grant = await deciding.decide(token, PREFIX, write)
    assert grant is not None
    return deciding, token, grant


@WRITES
async def test_as_long_as_what_it_rests_on_holds(proxy: Proxy, write: bool) -> None:
    times = Times(proxy.api)
    first = await Deciding(proxy.api).decide(proxy.token["X-Auth-Token"], PREFIX, write)
    assert first is not None
    deciding, token, grant = await decided(proxy, write)
    assert deciding.again(token, write, grant) == (WRITE_VALID_S if write else VALID_S)
    assert deciding.again(token, write, replace(grant, grounds=None)) is None
    assert deciding.again("nonsense", write, grant) is None
    times.now_s += 0.2
    assert deciding.again(token, write, grant) is not None
    times.now_s += 10_000.0
    assert deciding.again(token, write, grant) is None, "it has to be asked for"


Change = Callable[[Proxy], Awaitable[object]]


async def _posted(proxy: Proxy) -> None:
    assert (await proxy.call("POST", "c", {"X-Container-Read": "other:sue"})).status == 204


async def _account_posted(proxy: Proxy) -> None:
    assert (await proxy.call("POST", "", {"X-Account-Meta-A": "b"})).status == 204


async def _deleted(proxy: Proxy) -> None:
    assert (await proxy.call("DELETE", "c")).status == 204


async def _revoked(proxy: Proxy) -> None:
    headers = {**proxy.token, "X-Subject-Token": proxy.token["X-Auth-Token"]}
    async with proxy.client.delete("/v3/auth/tokens", headers=headers) as response:
        assert response.status == 204


async def _quotas_read_anew(proxy: Proxy) -> None:
    proxy.api.quotas.quotas = Quotas(precise=True)


async def _policy_with_other_etags(proxy: Proxy) -> None:
    proxy.api.options.policies.take([PolicySection(index=0, name="gold", default=True, etag="xxh3")], lambda _: True)


@WRITES
@pytest.mark.parametrize(
    ("change", "of_writes_alone"),
    [
        (_posted, False),
        (_account_posted, True),
        (_deleted, False),
        (_revoked, False),
        (_quotas_read_anew, False),
        (_policy_with_other_etags, False),
    ],
)
async def test_not_after_a_change(proxy: Proxy, write: bool, change: Change, of_writes_alone: bool) -> None:
    Times(proxy.api)
    deciding, token, grant = await decided(proxy, write)
    await change(proxy)
    # Also when what has changed is known again.
    for _ in range(2):
        holds = deciding.again(token, write, grant)
        assert (holds is not None) is (of_writes_alone and not write)
        await deciding.decide(token, PREFIX, write)


@WRITES
async def test_not_after_a_change_by_another_proxy(
    proxy: Proxy, cluster: MemoryCluster, tmp_path: Directory, write: bool
) -> None:
    """It has other counters, so only what is asked for anew shows it."""
    times = Times(proxy.api)
    deciding, token, grant = await decided(proxy, write)
    async with proxy_of(cluster, tmp_path) as other:
        other.clock.now = proxy.clock.now + 1
        assert (await other.call("POST", "c", {"X-Container-Read": "other:sue"})).status == 204
    times.now_s += 10_000.0
    assert deciding.again(token, write, grant) is None
    await deciding.decide(token, PREFIX, write)
    assert deciding.again(token, write, grant) is None


async def test_objects_and_totals_are_no_grounds(proxy: Proxy) -> None:
    times = Times(proxy.api)
    deciding, token, grant = await decided(proxy, True)
    assert (await proxy.call("PUT", "c/o", data=b"data")).status == 201
    times.now_s += 10_000.0
    await deciding.decide(token, PREFIX, True)
    assert deciding.again(token, True, grant) is not None


async def test_who_reads_by_an_acl_is_decided_about_each_time(proxy: Proxy) -> None:
    Times(proxy.api)
    assert (await proxy.call("POST", "c", {"X-Container-Read": "other:sue"})).status == 204
    sue = proxy.token_of("other:sue", Role.ADMIN)["X-Auth-Token"]
    assert (await decided(proxy, False, sue))[2].grounds is None


@pytest.mark.parametrize("scheme", ["http"], indirect=True)
async def test_the_front_goes_on_without_decisions(fronted: FrontedProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    times, front, api = Times(fronted.proxy.api), fronted.front, fronted.proxy.api
    token = fronted.proxy.token["X-Auth-Token"].encode()
    holders: list[Holder] = [(write, token, PREFIX.encode()) for write in (False, True)]
    for holder in holders:
        for _ in range(2):
            assert await front._grant(fronted.running, *holder)
    decisions = Decisions(monkeypatch)
    native = fronted.running.front

    async def used() -> None:
        before = fronted.answered
        assert (await fronted.proxy.call("PUT", "c/o", data=b"data")).status == 201
        assert (await fronted.proxy.call("GET", "c/o")).body == b"data"
        await until(lambda: fronted.answered == before + 2)

    for _ in range(3):
        native.withdraw(None)
        await used()
    assert decisions.begun == 0, "grants that ended were made once more"
    # They may have ended by themselves meanwhile.
    for holder in holders:
        assert front._given[holder].give(native, holder, api.changes.of_grants(ACCOUNT), 100.0)
    await used()
    assert sorted(native.used()) == sorted(holders)
    assert await front._extend(fronted.running, native.used()) == []
    assert native.used() == [], "extended"
    assert decisions.begun == 0
    # Of what is not known any more nothing is extended.
    await used()
    times.now_s += 10_000.0
    fronted.proxy.api.accounts.forget(ACCOUNT)
    assert sorted(await front._extend(fronted.running, list(holders))) == sorted(holders)
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Meta-A": "b"})).status == 204
    assert (await fronted.proxy.call("PUT", "c/o", data=b"other")).status == 201
    assert (await fronted.proxy.call("GET", "c/o")).body == b"other"
    await until(lambda: decisions.begun > 0)
