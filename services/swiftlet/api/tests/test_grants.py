"""What may be asked of `/v1/grants`, and what is granted by the facts of a proxy in memory."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path as Directory
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from swiftlet.api.http.problems import ApiError
from swiftlet.api.requests.grant_answers import Commons
from swiftlet.api.requests.grant_decisions import Decisions
from swiftlet.api.requests.grant_forms import MAX_BODY, Asked, parse
from swiftlet.api.requests.grant_slices import GrantSlices
from swiftlet.api.requests.grants import GrantsApi, Told, add_grant_routes
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.auth.identity import Role
from swiftlet.model import Amounts
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, MemoryCluster, OneRing, make_ring
from swiftlet.placement.tests.phases import bring
from swiftlet.policy_moves import Phase
from swiftlet.settings import LimitsSection, PolicySection
from swiftlet.settings.access import RateLimitsSection, RateStep
from swiftlet.settings.policies import Policies
from swiftlet.web.logs import configure_logging

KEYS = [b"the key of the tests, which is long enough for it"]
ASKED: dict[str, Any] = {"account": ACCOUNT, "container": "c", "operations": ["get", "put"]}
Client = TestClient[web.Request, web.Application]


def test_what_is_not_said_is_as_usual() -> None:
    asked = parse(json.dumps(ASKED).encode())
    operations = frozenset({"get", "put"})
    assert asked == Asked(ACCOUNT, "c", None, None, operations, None, 2**64 - 1, Amounts(0, 1000, 1 << 30), None)
    assert (asked.bits, asked.methods, asked.writes) == (5, ("GET", "PUT"), True)


def test_what_is_said_is_taken() -> None:
    session = base64.b64encode(b"s" * 28).decode()
    more = {"prefix": "ä/", "life_s": 5, "max_size": 0, "objects": 7, "bytes": 8, "session": session}
    asked = parse(json.dumps({**ASKED, **more}).encode())
    assert (asked.prefix, asked.life_s, asked.max_size, asked.amounts) == ("ä/", 5, 0, Amounts(0, 7, 8))
    assert asked.session == b"s" * 28
    assert parse(json.dumps({**ASKED, "object": "o"}).encode()).obj == "o"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"account": ""}, "account"),
        ({"account": None}, "account"),
        ({"account": "a/b"}, "account"),
        ({"account": "a" * 257}, "account"),
        ({"container": ["c"]}, "container"),
        ({"container": "a\0b"}, "container"),
        ({"container": "\ud800"}, "container"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "p" * 1025}, "prefix"),
        ({"object": 5}, "object"),
        ({"prefix": "p", "object": "o"}, "prefix and object"),
        ({"operations": []}, "operations"),
        ({"operations": "get"}, "operations"),
        ({"operations": ["list"]}, "operations"),
        ({"operations": [["get"]]}, "operations"),
        ({"life_s": 0}, "life_s"),
        ({"life_s": 1.5}, "life_s"),
        ({"life_s": True}, "life_s"),
        ({"max_size": -1}, "max_size"),
        ({"max_size": 2**64}, "max_size"),
        ({"objects": 0}, "objects"),
        ({"bytes": "1"}, "bytes"),
        ({"session": "no base64"}, "session"),
        ({"session": "A" * 68}, "session"),
        ({"policy": 1}, "policy"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(ApiError, match=named) as error:
        parse(json.dumps({**ASKED, **change}).encode())
    assert error.value.status == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 10_000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError, match="JSON object"):
        parse(body)


async def told(_account: str, _before_ms: int) -> Told:
    return Told(2, {"h:6200": "it is away"})


def api_of(proxy: Proxy, cluster: MemoryCluster) -> GrantsApi:
    api = proxy.api
    return GrantsApi(
        tokens=api.tokens,
        facts=api,
        decisions=Decisions(api),
        commons=Commons(api, cluster.rings, HASH_PATH, 1000),
        slices=GrantSlices(api.listings.claims, api.usage, api.quotas),
        keys=lambda: KEYS,
        authorities=lambda: (),
        revoke=told,
        life_s=60,
        max_life_s=900,
    )


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path) as made:
        yield made


async def answered(api: GrantsApi, token: str, **fields: object) -> tuple[int, Any]:
    app = web.Application()
    add_grant_routes(app, api)
    async with TestClient(TestServer(app)) as client:
        answer = await client.post("/v1/grants", json={**ASKED, **fields}, headers={"X-Auth-Token": token})
        return answer.status, await (answer.json() if answer.status == 200 else answer.text())


def token_of(proxy: Proxy, login: str = "test:tester", roles: Sequence[Role] = (Role.ADMIN,)) -> str:
    return proxy.token_of(login, *roles)["X-Auth-Token"]


async def test_a_grant_lives_as_long_as_is_wanted_and_allowed(proxy: Proxy, cluster: MemoryCluster) -> None:
    api = api_of(proxy, cluster)
    for life_s, expected in ((None, 60), (5, 5), (100_000, 900)):
        status, granted = await answered(api, token_of(proxy), **({} if life_s is None else {"life_s": life_s}))
        assert status == 200
        assert 0 <= expected - (granted["expires"] - granted["now"]) < 1.5
        assert granted["expires"] - granted["issued"] <= 900
    ends = api.now() + 3
    tokens = proxy.api.tokens
    short = tokens.text(tokens.fresh(tokens.check(token_of(proxy)), "", expires=int(ends)))
    status, granted = await answered(api, short)
    assert (status, granted["expires"] <= ends) == (200, True)


async def test_each_grant_has_one_line_in_the_log_that_says_who_may_do_what_where_and_for_how_long(
    proxy: Proxy, cluster: MemoryCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also of those by one decision, which are made of what they have in common; what is refused has none."""
    configure_logging("metadata")
    api = api_of(proxy, cluster)
    token = token_of(proxy)
    asked: list[dict[str, object]] = [
        {"prefix": "2026/", "life_s": 7},
        {"prefix": "2026/", "life_s": 7},
        {"prefix": "2027/"},
        {"object": "ö", "operations": ["head"], "life_s": 100_000},
        {},
    ]
    answers = [await answered(api, token, **fields) for fields in asked]
    assert (await answered(api, token_of(proxy, "other:sue")))[0] == 403
    assert (await answered(api, token, operations=["none"]))[0] == 400
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "a grant was given" in line]
    assert len(lines) == len(answers)
    for line, fields, (status, answer) in zip(lines, asked, answers, strict=True):
        session = base64.b64decode(answer["session"]["token"])
        line.pop("timestamp")
        assert status == 200
        assert line == {
            "event": "a grant was given",
            "level": "info",
            "service": "metadata",
            "logger": "grants",
            "user": f"{ACCOUNT}:tester",
            "account": ACCOUNT,
            "container": "c",
            "prefix": fields.get("prefix"),
            "object": fields.get("object"),
            "operations": fields.get("operations", ["get", "put"]),
            "life_s": min(int(str(fields.get("life_s", 60))), 900),
            "guest": session[4:20].hex(),
            "request_id": "-",
        }
    assert len({line["guest"] for line in lines}) == len(lines)


async def test_a_grant_tells_of_the_ring_and_the_certificates_that_are_in_force(
    proxy: Proxy, cluster: MemoryCluster
) -> None:
    """Also when what it rests on was decided, and remembered, before they were changed."""
    rings, authorities = OneRing(cluster.ring), list[str]()
    decisions = Decisions(proxy.api, lambda: 7.0)
    api = replace(
        api_of(proxy, cluster),
        decisions=decisions,
        commons=Commons(proxy.api, rings, HASH_PATH, 1000),
        authorities=lambda: authorities,
    )
    told = (await answered(api, token_of(proxy)))[1]
    assert (told["ring_version"], told["authorities"], told["container_replicas"]) == (cluster.ring.version, [], 3)
    rings.ring = make_ring(5, 2)
    authorities.append("PEM")
    told = (await answered(api, token_of(proxy)))[1]
    assert (told["ring_version"], told["authorities"]) == (rings.ring.version, ["PEM"])
    assert told["container_replicas"] == 2


async def test_a_grant_is_as_old_as_what_it_rests_on(proxy: Proxy, cluster: MemoryCluster) -> None:
    facts, now = proxy.api, 5000.0
    token, asked = proxy.api.tokens.read(token_of(proxy)), parse(json.dumps(ASKED).encode())
    decisions = Decisions(facts, lambda: 7.0, lambda: now)
    first = await decisions.decide(token, asked)
    assert now - 1.0 <= first.known_at <= now
    now += 0.2
    assert (await decisions.decide(token, asked)).known_at == first.known_at, "it is remembered as it was"
    again = await Decisions(facts, lambda: 7.0, lambda: now).decide(token, asked)
    oldest_s = max(facts.containers.age_s(ACCOUNT, "c"), facts.accounts.age_s(ACCOUNT))
    assert now - oldest_s <= again.known_at < now, "of facts that are cached the age counts"


async def test_what_object_servers_do_not_know_is_left_to_proxies(cluster: MemoryCluster, tmp_path: Directory) -> None:
    rates = RateLimitsSection(container_ratelimits=(RateStep(size=0, rate=5.0),))
    sections: list[dict[str, Any]] = [{"limits": LimitsSection(max_meta_count=5)}, {"rate_limits": rates}]
    for more in sections:
        async with proxy_of(cluster, tmp_path, **more) as strict:
            api = api_of(strict, cluster)
            assert (await answered(api, token_of(strict)))[0] == 409
            assert (await answered(api, token_of(strict), operations=["get"]))[0] == 200


@pytest.mark.parametrize("phase", Phase)
async def test_objects_of_a_container_that_moves_are_left_to_proxies(
    proxy: Proxy, cluster: MemoryCluster, phase: Phase
) -> None:
    api = api_of(proxy, cluster)
    await bring(cluster, phase)
    proxy.api.containers.forget(ACCOUNT, "c")
    for operations in (["get"], ["put"], ["delete"]):
        status, refused = await answered(api, token_of(proxy), operations=operations)
        assert status == 409
        assert "moves from storage policy gold to silver: use a proxy" in str(refused)


async def test_a_container_has_grants_again_once_the_policy_is_retired_that_it_left(
    cluster: MemoryCluster, tmp_path: Directory
) -> None:
    await bring(cluster, Phase.SETTLED)
    silver = PolicySection(index=1, name="silver", default=True)
    async with proxy_of(cluster, tmp_path, policies=Policies([silver])) as proxy:
        status, granted = await answered(api_of(proxy, cluster), token_of(proxy))
        assert (status, granted["policy"]) == (200, {"index": 1, "name": "silver"})


async def test_an_answer_names_who_was_not_told_of_a_revocation(proxy: Proxy, cluster: MemoryCluster) -> None:
    app = web.Application()
    add_grant_routes(app, api_of(proxy, cluster))
    async with TestClient(TestServer(app)) as client:
        headers = {"X-Auth-Token": token_of(proxy)}
        answer = await client.delete(f"/v1/grants/{ACCOUNT}", headers=headers)
        assert answer.status == 202
        body = await answer.json()
        assert (body["servers"], body["unreached"]) == (2, {"h:6200": "it is away"})
        assert body["ended_by"] == body["before"] + 900
        assert (await client.delete(f"/v1/grants/{ACCOUNT}")).status == 401
        for sender in (token_of(proxy, "other:sue"), token_of(proxy, roles=[Role.USER])):
            refused = await client.delete(f"/v1/grants/{ACCOUNT}", headers={"X-Auth-Token": sender})
            assert refused.status == 403


async def test_bodies_have_a_limit(proxy: Proxy, cluster: MemoryCluster) -> None:
    app = web.Application()
    add_grant_routes(app, replace(api_of(proxy, cluster)))
    async with TestClient(TestServer(app)) as client:
        headers = {"X-Auth-Token": token_of(proxy)}
        answer = await client.post("/v1/grants", data=b" " * (MAX_BODY + 1), headers=headers)
        assert answer.status == 413
        assert (await client.post("/v1/grants", json=ASKED)).status == 401
