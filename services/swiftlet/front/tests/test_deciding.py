"""What is decided without anybody asking: grants, and what ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.auth.identity import Identity, Role
from swiftlet.errors import Forbidden
from swiftlet.front.deciding import VALID_S, Deciding, Grant
from swiftlet.front.withdrawing import Withdrawal, withdrawal
from swiftlet.model import ContainerInfo
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.placement.tests.phases import bring
from swiftlet.policy_moves import Phase
from swiftlet.settings import LimitsSection
from swiftlet.settings.access import RateLimitsSection, RateStep

PREFIX = f"/v1/{ACCOUNT}/c/"


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path) as made:
        yield made


def token(proxy: Proxy, login: str = "test:tester", *roles: Role) -> str:
    return proxy.token_of(login, *(roles or (Role.ADMIN,)))["X-Auth-Token"]


async def test_who_may_read_is_granted(proxy: Proxy) -> None:
    deciding = Deciding(proxy.api)
    grant = await deciding.decide(token(proxy), PREFIX)
    assert grant == Grant(Path(ACCOUNT, "c"), 0, VALID_S)
    assert grant.container == b"/AUTH_test/c/"
    assert await deciding.decide(token(proxy, "test:rita", Role.READER), PREFIX) is not None
    for refused in ("", "AUTH_tkx.y", token(proxy, "other:sue"), token(proxy, "test:nobody", Role.ADMIN) + "x"):
        assert await deciding.decide(refused, PREFIX) is None
    for nowhere in (f"/v1/{ACCOUNT}/d/", "/v1/AUTH_other/c/", f"/v1/{ACCOUNT}/%zz/", f"/v1/{ACCOUNT}/%00/"):
        assert await deciding.decide(token(proxy), nowhere) is None


async def test_by_the_containers_acl(proxy: Proxy) -> None:
    deciding, sue = Deciding(proxy.api), token(proxy, "other:sue")
    await proxy.call("POST", "c", {"X-Container-Read": "other:sue,.r:example.org"})
    assert await deciding.decide(sue, PREFIX) is not None
    assert await deciding.decide("", PREFIX) is None, "the front answers none with a Referer"
    await proxy.call("POST", "c", {"X-Container-Read": ".r:*"})
    assert await deciding.decide("", PREFIX) is not None
    await proxy.call("POST", "c", {"X-Container-Meta-Web-Index": "index.html"})
    assert await deciding.decide("", PREFIX) is None, "a visit to a web site"
    assert await deciding.decide(sue, PREFIX) is not None


async def test_who_may_write_and_not_read(proxy: Proxy) -> None:
    """A condition of a write tells which objects there are."""
    deciding, sue = Deciding(proxy.api), token(proxy, "other:sue")
    own = await deciding.decide(token(proxy), PREFIX, write=True)
    assert own is not None
    assert own.reads
    for read, reads in (("", False), ("other:sue", True), (".r:*", True), (".r:example.org", False)):
        await proxy.call("POST", "c", {"X-Container-Write": "other:sue", "X-Container-Read": read})
        grant = await deciding.decide(sue, PREFIX, write=True)
        assert grant is not None
        assert grant.reads is reads, read


async def test_writes_where_objects_go_by_themselves(proxy: Proxy) -> None:
    """What replaces such an object takes it off the expirer's queue, which only Python does."""
    deciding = Deciding(proxy.api)
    for marked in (False, True):
        grant = await deciding.decide(token(proxy), PREFIX, write=True)
        assert grant is not None
        assert grant.expiring is marked
        assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, b"x")).status == 201
    assert await deciding.decide(token(proxy), PREFIX) is not None


@pytest.mark.parametrize("phase", Phase)
async def test_while_the_container_moves_nothing_but_reads_once_that_is_settled(
    cluster: MemoryCluster, proxy: Proxy, phase: Phase
) -> None:
    deciding = Deciding(proxy.api)
    await bring(cluster, phase)
    assert await deciding.decide(token(proxy), PREFIX, write=True) is None
    grant = await deciding.decide(token(proxy), PREFIX)
    assert grant == (Grant(Path(ACCOUNT, "c"), 1, VALID_S) if phase is Phase.SETTLED else None)


async def test_ends_with_its_token(proxy: Proxy) -> None:
    identity = Identity(ACCOUNT, "tester", frozenset({Role.ADMIN}))
    tokens = proxy.api.tokens
    ends = tokens.fresh(identity, "").issued + 5
    text = tokens.text(tokens.fresh(identity, "", expires=ends))
    for left_s in (3.0, 0.5):
        grant = await Deciding(proxy.api, now=lambda: ends - left_s).decide(text, PREFIX)  # noqa: B023 - used at once
        assert grant is not None
        assert grant.valid_s == min(VALID_S, left_s)
    assert await Deciding(proxy.api, now=lambda: float(ends)).decide(text, PREFIX) is None


async def test_what_a_decision_takes_is_no_longer_left_of_the_token(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = Identity(ACCOUNT, "tester", frozenset({Role.ADMIN}))
    tokens, containers = proxy.api.tokens, proxy.api.containers
    ends = tokens.fresh(identity, "").issued + 5
    text = tokens.text(tokens.fresh(identity, "", expires=ends))
    now, known = ends - 0.75, containers.facts

    async def facts(account: str, container: str, max_age_s: float) -> ContainerInfo:
        nonlocal now
        now = ends - 0.25
        return await known(account, container, max_age_s)

    monkeypatch.setattr(containers, "facts", facts)
    grant = await Deciding(proxy.api, now=lambda: now).decide(text, PREFIX)
    assert grant is not None
    assert grant.valid_s == 0.25


async def test_versions_are_told_by_python(proxy: Proxy) -> None:
    await proxy.call("POST", "c", {"X-Versions-Enabled": "true"})
    assert await Deciding(proxy.api).decide(token(proxy), PREFIX) is None


async def test_nothing_where_nothing_is_remembered(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, ttl_s=VALID_S) as forgetful:
        assert await Deciding(forgetful.api).decide(token(forgetful), PREFIX) is None


async def test_nothing_where_shorter_heads_are_refused(cluster: MemoryCluster, tmp_path: Directory) -> None:
    for size, is_granted in ((4095, False), (4096, True)):
        async with proxy_of(cluster, tmp_path, limits=LimitsSection(max_header_size=size)) as strict:
            for write in (False, True):
                grant = await Deciding(strict.api).decide(token(strict), PREFIX, write)
                assert (grant is not None) == is_granted


async def test_rests_on_nothing_that_ends_before_it(
    cluster: MemoryCluster, tmp_path: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_of(cluster, tmp_path, ttl_s=10.0) as proxy:
        now = [1000.0]
        for clocked in (proxy.api.containers._cache, proxy.api.containers._cache._known):
            monkeypatch.setattr(clocked, "_clock", lambda: now[0])
        deciding = Deciding(proxy.api)
        assert await deciding.decide(token(proxy), PREFIX) is not None
        with cluster.databases_down(*cluster.container_devices()):
            now[0] += 10.0 - VALID_S - 0.1
            assert await deciding.decide(token(proxy), PREFIX) is not None
            now[0] += 0.2
            assert await deciding.decide(token(proxy), PREFIX) is None, "it is asked for again, and nobody answers"


async def test_by_an_acl_holds_until_that_is_a_second_old(
    cluster: MemoryCluster, tmp_path: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_of(cluster, tmp_path) as proxy:
        await proxy.call("POST", "c", {"X-Container-Read": "other:sue,.r:*"})
        now, sue = [1000.0], token(proxy, "other:sue")
        for cache in (proxy.api.containers._cache, proxy.api.accounts._cache):
            for clocked in (cache, cache._known):
                monkeypatch.setattr(clocked, "_clock", lambda: now[0])
        deciding = Deciding(proxy.api)
        for asked in (sue, ""):
            for later_s, valid_s in ((0.0, 1.0), (0.5, 0.5), (0.3, 1.0)):
                now[0] += later_s
                grant = await deciding.decide(asked, PREFIX)
                assert grant is not None
                assert grant.valid_s == pytest.approx(valid_s), (asked, later_s)
            now[0] += 10.0


@pytest.mark.parametrize(
    ("method", "path", "query", "ended"),
    [
        ("GET", "/v1/a/c", "", None),
        ("HEAD", "/v1/a", "", None),
        ("OPTIONS", "/v1/a/c", "", None),
        ("PUT", "/v1/a/c/o", "", None),
        ("DELETE", "/v1/a/c/o", "", None),
        ("POST", "/v1/a/c/o", "", None),
        ("POST", "/v1/a/c", "", Withdrawal("a")),
        ("DELETE", "/v1/a/c/", "", Withdrawal("a")),
        ("PUT", "/v1.0/%61/c", "", Withdrawal("a")),
        ("POST", "/v1/a", "", Withdrawal("a")),
        ("POST", "/v1/a", "bulk-delete", Withdrawal("a")),
        ("PUT", "/v1/a/c/o", "extract-archive=tar", Withdrawal("a")),
        ("DELETE", "/v3/auth/tokens", "", Withdrawal(None)),
        ("POST", "/auth/v1.0", "", Withdrawal(None)),
        ("PUT", "/v1/%zz/c", "", None),
    ],
)
def test_what_may_have_changed(method: str, path: str, query: str, ended: Withdrawal | None) -> None:
    assert withdrawal(method, path, query) == ended


async def test_no_writes_where_rates_are_limited(cluster: MemoryCluster, tmp_path: Directory) -> None:
    limits = RateLimitsSection(container_ratelimits=(RateStep(size=0, rate=1000),))
    async with proxy_of(cluster, tmp_path, rate_limits=limits) as limited:
        deciding = Deciding(limited.api)
        assert await deciding.decide(token(limited), PREFIX) is not None
        assert await deciding.decide(token(limited), PREFIX, write=True) is None


async def test_who_may_only_store_has_no_grant(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """No role and no ACL says so today; one that does will not make the front delete anything."""
    deciding = Deciding(proxy.api)
    assert await deciding.decide(token(proxy), PREFIX, write=True) is not None

    async def require(_access: object, method: str, _path: Path) -> bool:
        if method == "DELETE":
            raise Forbidden("deleting")
        return True

    monkeypatch.setattr("swiftlet.api.writing.plain_access.TokenAccess.require", require)
    assert await deciding.decide(token(proxy), PREFIX) is not None
    assert await deciding.decide(token(proxy), PREFIX, write=True) is None
