"""DELETE of an account, by a reseller admin: what clients see until the reaper has been there, and after."""

from __future__ import annotations

import pytest

from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.quotas import connect_accounts, reseller
from swiftlet.errors import Unavailable
from swiftlet.expiry.reaper import Reaper
from swiftlet.model import AccountInfo
from swiftlet.placement.tests.cluster import ACCOUNT
from swiftlet.settings.reaper import ReaperSection


@pytest.fixture(autouse=True)
async def connected(proxy: Proxy) -> None:
    for reporter in connect_accounts(proxy.cluster):
        # The account knows of the container that was there before.
        assert await reporter.run_once() == 0
    assert (await proxy.call("PUT", "c2")).status == 201
    assert (await proxy.call("PUT", "c2/o", data=b"data")).status == 201


async def reap(proxy: Proxy) -> None:
    section = ReaperSection(delay_s=0, objects_per_second=100_000)
    nodes, stamp = ["h:1"], proxy.api.clock.next
    reaper = Reaper(
        proxy.api.listings,
        proxy.api.objects.by_policy,
        section,
        lambda: nodes,
        nodes,
        stamp,
        lambda: stamp().seconds + 1,
    )
    assert (await reaper.run_round()).accounts == 1


async def test_an_account_is_gone_at_once_and_can_be_made_again_later(proxy: Proxy) -> None:
    admin = reseller(proxy)
    assert (await proxy.call("DELETE", "", admin)).status == 204
    proxy.api.containers.forget(ACCOUNT, "c2")
    for method, path, status in (
        ("HEAD", "", 404),
        ("GET", "", 404),
        ("POST", "", 404),
        ("DELETE", "", 404),
        ("PUT", "", 409),
        ("GET", "c2", 404),
        ("PUT", "c3", 404),
        ("GET", "c2/o", 404),
        ("PUT", "c2/o", 404),
    ):
        assert (await proxy.call(method, path, admin)).status == status, (method, path)
    answer = await proxy.call("PUT", "", admin)
    assert b"was deleted and is still being removed" in answer.body
    await reap(proxy)
    proxy.api.accounts.forget(ACCOUNT)
    assert (await proxy.call("PUT", "", admin)).status == 201
    assert (await proxy.call("GET", "", admin)).status == 204
    assert (await proxy.call("PUT", "c2", admin)).status == 201
    assert (await proxy.call("GET", "c2/o", admin)).status == 404


async def test_an_empty_account_goes_at_once(proxy: Proxy) -> None:
    admin = reseller(proxy)
    assert (await proxy.call("DELETE", "c2/o")).status == 204
    assert (await proxy.call("DELETE", "c2")).status == 204
    assert (await proxy.call("DELETE", "c")).status == 204
    assert (await proxy.call("DELETE", "", admin)).status == 204
    assert (await proxy.call("PUT", "", admin)).status == 201


async def test_only_reseller_admins_delete_accounts(proxy: Proxy) -> None:
    assert (await proxy.call("DELETE", "")).status == 403
    assert (await proxy.call("GET", "c2/o")).body == b"data"


async def test_without_account_databases_objects_are_served(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(account: str) -> AccountInfo:
        raise Unavailable(f"/{account}: nobody answers")

    monkeypatch.setattr(proxy.api.accounts, "_fetch", away)
    proxy.api.containers.forget(ACCOUNT, "c2")
    proxy.api.accounts.forget(ACCOUNT)
    assert (await proxy.call("GET", "c2/o")).body == b"data"
    assert (await proxy.call("PUT", "c2/new", data=b"data")).status == 201
