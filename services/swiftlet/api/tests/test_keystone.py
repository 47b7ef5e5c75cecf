"""Keystone's token endpoints: both versions, what they refuse and how, and tokens that end before their time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path as Directory
from typing import Any

import pytest
import structlog
import yaml
from yarl import URL

from swiftlet.api.login.keystone import MAX_BODY
from swiftlet.api.tests.proxy import SECRET, Proxy, proxy_of
from swiftlet.auth.tokens import derive_key
from swiftlet.auth.users import Users, hash_secret
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster

DEFAULT = {"id": "default"}
PROJECT = {"project": {"name": "test", "domain": DEFAULT}}
_OTHER = hash_secret("other secret")
_ROOT = hash_secret("root secret")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any


def write_users(root: Directory, *entries: tuple[str, str, str, list[str]]) -> None:
    """Accounts, users, hashes of secrets, and roles; in one step, as the file is renamed into its place."""
    listed = [{"account": a, "user": u, "secret_hash": h, "roles": r} for a, u, h, r in entries]
    (root / "new.yaml").write_text(yaml.safe_dump(listed))
    (root / "new.yaml").rename(root / "users.yaml")


TESTER = ("test", "tester", hash_secret(SECRET), ["admin"])
READER = ("test", "reader", _OTHER, ["reader"])
ROOT = ("admin", "root", _ROOT, ["reseller_admin"])


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path) as made:
        write_users(tmp_path, TESTER, READER, ROOT)
        made.api.users.reload()
        made.token = {}
        yield made


async def call(
    proxy: Proxy, method: str, path: str, document: object = None, headers: Mapping[str, str] | None = None
) -> Reply:
    data = document if isinstance(document, bytes) or document is None else json.dumps(document).encode()
    async with proxy.client.request(method, path, data=data, headers=headers) as response:
        raw = await response.read()
        return Reply(response.status, response.headers.copy(), json.loads(raw) if raw else None)


def by_password(
    name: str = "tester", secret: str = SECRET, scope: object = PROJECT, domain: object = DEFAULT
) -> dict[str, Any]:
    user = {"name": name, "password": secret, "domain": domain}
    auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": user}}}
    return {"auth": auth if scope is None else auth | {"scope": scope}}


def by_token(token: str, scope: object = PROJECT) -> dict[str, Any]:
    return {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}, "scope": scope}}


async def token_of(proxy: Proxy, *args: Any) -> str:
    reply = await call(proxy, "POST", "/v3/auth/tokens", by_password(*args))
    assert reply.status == 201, reply.body
    return reply.headers["X-Subject-Token"]


async def use(proxy: Proxy, token: str, method: str = "GET", path: str = "c") -> int:
    data = b"x" if method == "PUT" else None
    return (await proxy.call(method, path, {"X-Auth-Token": token}, data, "format=json")).status


# Version 3.


async def test_a_login_by_password(proxy: Proxy) -> None:
    reply = await call(proxy, "POST", "/v3/auth/tokens", by_password())
    assert reply.status == 201
    known = reply.body["token"]
    assert known["methods"] == ["password"]
    assert (known["user"]["name"], known["project"]["name"]) == ("tester", "test")
    assert known["project"]["domain"]["id"] == "default"
    assert [role["name"] for role in known["roles"]] == ["admin"]
    assert known["issued_at"] < known["expires_at"]
    [swift] = [service for service in known["catalog"] if service["type"] == "object-store"]
    urls = {endpoint["interface"]: endpoint["url"] for endpoint in swift["endpoints"]}
    base = f"http://127.0.0.1:{proxy.port}"
    assert urls == dict.fromkeys(("public", "internal", "admin"), f"{base}/v1/{ACCOUNT}")
    token = reply.headers["X-Subject-Token"]
    assert await use(proxy, token, "PUT", "c/o") == 201
    # Side by side with v1, and the same kind of token.
    v1 = {"X-Auth-User": "test:tester", "X-Auth-Key": SECRET}
    async with proxy.client.get("/auth/v1.0", headers=v1) as response:
        assert (response.status, await use(proxy, response.headers["X-Auth-Token"], "GET", "c/o")) == (200, 200)


async def test_the_catalog_points_to_storage_url_or_to_the_host_asked(
    cluster: MemoryCluster, tmp_path: Directory
) -> None:
    for configured, host, expected in (
        (None, "objects.example.org", "http://objects.example.org/v1/AUTH_test"),
        ("https://s.example.org/swift", "objects.example.org", "https://s.example.org/swift/v1/AUTH_test"),
    ):
        async with proxy_of(cluster, tmp_path, storage_url=configured) as proxy:
            reply = await call(proxy, "POST", "/v3/auth/tokens", by_password(), {"Host": host})
            assert reply.body["token"]["catalog"][0]["endpoints"][0]["url"] == expected


@pytest.mark.parametrize(
    ("name", "scope", "domain"),
    [
        ("tester", {"project": {"id": "test"}}, DEFAULT),
        ("tester", {"project": {"name": "test", "domain": {"name": "Default"}}}, {"name": "Default"}),
        ("test:tester", None, None),
        ("test:tester", "unscoped", DEFAULT),
        ("tester", None, DEFAULT),
    ],
)
async def test_ways_to_name_user_and_project(proxy: Proxy, name: str, scope: object, domain: object) -> None:
    reply = await call(proxy, "POST", "/v3/auth/tokens", by_password(name, SECRET, scope, domain))
    assert (reply.status, reply.body["token"]["project"]["id"]) == (201, "test")


async def test_roles_are_those_of_the_user(proxy: Proxy) -> None:
    token = await token_of(proxy, "reader", "other secret")
    assert await use(proxy, token) == 200
    assert await use(proxy, token, "PUT", "c/o") == 403
    # A reseller admin may have any account's catalog.
    scope = {"project": {"name": "test", "domain": DEFAULT}}
    reply = await call(proxy, "POST", "/v3/auth/tokens", by_password("admin:root", "root secret", scope))
    assert reply.status == 201
    assert reply.body["token"]["catalog"][0]["endpoints"][0]["url"].endswith("/v1/AUTH_test")
    assert await use(proxy, reply.headers["X-Subject-Token"], "PUT", "c/o") == 201


async def test_a_login_by_token_lives_no_longer_than_that_token(proxy: Proxy) -> None:
    first = await token_of(proxy)
    reply = await call(proxy, "POST", "/v3/auth/tokens", by_token(first))
    assert (reply.status, reply.body["token"]["methods"]) == (201, ["token"])
    second = proxy.api.tokens.read(reply.headers["X-Subject-Token"])
    assert second.expires <= proxy.api.tokens.read(first).expires
    assert second.id != proxy.api.tokens.read(first).id
    assert (await call(proxy, "POST", "/v3/auth/tokens", by_token(first[:-4] + "AAAA"))).status == 401
    other = {"project": {"name": "other", "domain": DEFAULT}}
    assert (await call(proxy, "POST", "/v3/auth/tokens", by_token(first, other))).status == 401


@pytest.mark.parametrize(
    "document",
    [
        by_password(secret="wrong"),
        by_password("nobody"),
        by_password(domain={"id": "elsewhere"}),
        by_password(scope={"project": {"name": "test", "domain": {"id": "elsewhere"}}}),
        by_password(scope={"project": {"name": "admin", "domain": DEFAULT}}),
        by_password("test:tester", scope={"project": {"name": "admin", "domain": DEFAULT}}),
    ],
)
async def test_what_does_not_fit_is_401_without_a_word_on_what(proxy: Proxy, document: object) -> None:
    reply = await call(proxy, "POST", "/v3/auth/tokens", document)
    message = "The request you have made requires authentication."
    assert reply.body == {"error": {"code": 401, "title": "Unauthorized", "message": message}}
    assert reply.headers["WWW-Authenticate"].startswith("Keystone uri=")
    assert reply.status == 401


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (b"", "not JSON"),
        (b"[]", "no"),
        (b"[" * 5000, "not JSON"),
        ({}, "auth"),
        ({"auth": 5}, "auth"),
        ({"auth": {"identity": []}}, "auth.identity"),
        ({"auth": {"identity": {"methods": []}}}, "methods"),
        ({"auth": {"identity": {"methods": ["totp"]}}}, "methods"),
        ({"auth": {"identity": {"methods": ["password"]}}}, "auth.identity.password"),
        ({"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": 5}}}}}, "name"),
        ({"auth": {"identity": {"methods": ["token"], "token": {}}}}, "auth.identity.token.id"),
        (by_password(scope={"system": {"all": True}}), "project"),
        (by_password(scope={"project": {}}), "auth.scope.project"),
    ],
)
async def test_malformed_requests_are_400_and_name_the_field(proxy: Proxy, document: object, named: str) -> None:
    reply = await call(proxy, "POST", "/v3/auth/tokens", document)
    assert (reply.status, reply.body["error"]["code"], reply.body["error"]["title"]) == (400, 400, "Bad Request")
    assert named in reply.body["error"]["message"]


async def test_bodies_are_limited(proxy: Proxy) -> None:
    for path in ("/v3/auth/tokens", "/v2.0/tokens"):
        reply = await call(proxy, "POST", path, b" " * (MAX_BODY + 1))
        assert (reply.status, reply.body["error"]["code"]) == (413, 413)


async def test_too_many_failures_are_429(proxy: Proxy) -> None:
    # Two are allowed in these tests; v1 and Keystone count together.
    v1 = {"X-Auth-User": "test:tester", "X-Auth-Key": "wrong"}
    async with proxy.client.get("/auth/v1.0", headers=v1) as response:
        assert response.status == 401
    assert (await call(proxy, "POST", "/v3/auth/tokens", by_password(secret="wrong"))).status == 401
    reply = await call(proxy, "POST", "/v3/auth/tokens", by_password())
    assert (reply.status, reply.body["error"]["code"]) == (429, 429)
    assert int(reply.headers["Retry-After"]) > 0
    old = {"auth": {"passwordCredentials": {"username": "tester", "password": SECRET}, "tenantName": "test"}}
    assert (await call(proxy, "POST", "/v2.0/tokens", old)).status == 429


async def test_other_paths_and_methods(proxy: Proxy) -> None:
    reply = await call(proxy, "GET", "/v3/users")
    assert (reply.status, reply.body["error"]["code"]) == (404, 404)
    reply = await call(proxy, "PUT", "/v3/auth/tokens")
    assert (reply.status, "POST" in reply.headers["Allow"]) == (405, True)


async def test_versions_are_discovered(proxy: Proxy) -> None:
    for path, number in (("/v3", "v3.14"), ("/v3/", "v3.14"), ("/v2.0", "v2.0")):
        reply = await call(proxy, "GET", path)
        assert (reply.status, reply.body["version"]["id"]) == (200, number)
        assert reply.body["version"]["links"][0]["href"].startswith(f"http://127.0.0.1:{proxy.port}/v")


# Version 2.0.


async def test_version_2(proxy: Proxy) -> None:
    credentials = {"username": "tester", "password": SECRET}
    reply = await call(
        proxy, "POST", "/v2.0/tokens", {"auth": {"passwordCredentials": credentials, "tenantName": "test"}}
    )
    access = reply.body["access"]
    assert (reply.status, access["token"]["tenant"]["name"], access["user"]["name"]) == (200, "test", "tester")
    [swift] = [service for service in access["serviceCatalog"] if service["type"] == "object-store"]
    assert swift["endpoints"][0]["publicURL"] == f"http://127.0.0.1:{proxy.port}/v1/{ACCOUNT}"
    token = access["token"]["id"]
    assert await use(proxy, token, "PUT", "c/o") == 201
    again = {"auth": {"token": {"id": token}, "tenantId": "test"}}
    assert (await call(proxy, "POST", "/v2.0/tokens", again)).status == 200


@pytest.mark.parametrize(
    ("auth", "status"),
    [
        ({"passwordCredentials": {"username": "tester", "password": "wrong"}, "tenantName": "test"}, 401),
        ({"passwordCredentials": {"username": "tester", "password": SECRET}, "tenantName": "admin"}, 401),
        ({"passwordCredentials": {"username": "tester", "password": "wrong"}}, 401),
        ({"passwordCredentials": {"username": "nobody", "password": SECRET}}, 401),
        ({"passwordCredentials": {"username": "tester"}, "tenantName": "test"}, 400),
        ({"passwordCredentials": 5}, 400),
        ({"token": {"id": "AUTH_tk"}, "tenantName": "test"}, 401),
        ({"token": {}}, 400),
        ({}, 400),
    ],
)
async def test_version_2_refuses(proxy: Proxy, auth: object, status: int) -> None:
    reply = await call(proxy, "POST", "/v2.0/tokens", {"auth": auth})
    assert (reply.status, reply.body["error"]["code"]) == (status, status)


# Tokens that are shown and revoked, and tokens whose time is up before it was.


async def test_tokens_are_shown_to_whom_they_concern(proxy: Proxy) -> None:
    mine, other = await token_of(proxy), await token_of(proxy, "reader", "other secret")
    root = await token_of(proxy, "admin:root", "root secret", None)

    async def shown(sender: str, subject: str, method: str = "GET") -> Reply:
        headers = {"X-Auth-Token": sender, "X-Subject-Token": subject}
        return await call(proxy, method, "/v3/auth/tokens", headers=headers)

    reply = await shown(other, other)
    assert (reply.status, reply.body["token"]["user"]["name"]) == (200, "reader")
    assert reply.headers["X-Subject-Token"] == other
    reply = await shown(mine, mine, "HEAD")
    assert (reply.status, reply.body) == (200, None)
    assert (await shown(mine, other)).status == 200
    assert (await shown(root, mine)).status == 200
    assert (await shown(other, mine)).status == 403
    assert (await shown(mine, "AUTH_tkxyz")).status == 404
    assert (await shown("AUTH_tkxyz", mine)).status == 401
    assert (await call(proxy, "GET", "/v3/auth/tokens", headers={"X-Auth-Token": mine})).status == 400
    assert (await call(proxy, "GET", "/v3/auth/tokens", headers={"X-Subject-Token": mine})).status == 401
    headers = {"X-Auth-Token": mine}
    projects = await call(proxy, "GET", "/v3/auth/projects", headers=headers)
    assert [one["name"] for one in projects.body["projects"]] == ["test"]
    assert (await call(proxy, "GET", "/v3/auth/catalog", headers=headers)).body["catalog"][0]["type"] == "object-store"


async def revoke(proxy: Proxy, token: str, sender: str | None = None) -> int:
    headers = {"X-Auth-Token": sender or token, "X-Subject-Token": token}
    return (await call(proxy, "DELETE", "/v3/auth/tokens", headers=headers)).status


async def test_a_revoked_token_is_good_for_nothing_in_any_process(
    proxy: Proxy, cluster: MemoryCluster, tmp_path: Directory
) -> None:
    (tmp_path / "other").mkdir()
    async with proxy_of(cluster, tmp_path / "other") as second:
        second.token = {}
        write_users(tmp_path / "other", TESTER, READER, ROOT)
        second.api.users.reload()
        token, kept = await token_of(proxy), await token_of(proxy)
        assert await use(second, token) == 200
        assert await revoke(proxy, token) == 204
        assert await use(proxy, token) == 401
        assert await use(second, token) == 200
        await second.api.revocations.refresh()
        assert await use(second, token) == 401
        assert (await call(proxy, "POST", "/v3/auth/tokens", by_token(token))).status == 401
        assert (await use(proxy, kept), await use(second, kept)) == (200, 200)
        assert await revoke(proxy, token, kept) == 404
        # One that was started anew knows it, too.
        proxy.api.revocations.revoked.use([])
        await proxy.api.revocations.refresh()
        assert await use(proxy, token) == 401


async def test_who_may_revoke(proxy: Proxy) -> None:
    mine, other = await token_of(proxy), await token_of(proxy, "reader", "other secret")
    assert await revoke(proxy, mine, other) == 403
    assert await revoke(proxy, other, mine) == 204
    assert await use(proxy, other) == 401
    assert await use(proxy, mine) == 200


async def test_a_revocation_that_nobody_keeps_is_refused(proxy: Proxy, cluster: MemoryCluster) -> None:
    token = await token_of(proxy)
    with cluster.databases_down(*cluster.devices):
        assert await revoke(proxy, token) == 503
        await proxy.api.revocations.refresh()
    assert await use(proxy, token) == 200


async def test_a_user_who_is_changed_or_removed_has_no_tokens_left(proxy: Proxy, tmp_path: Directory) -> None:
    token = await token_of(proxy)
    assert await use(proxy, token) == 200
    # Somebody else changes: nothing happens.
    write_users(tmp_path, TESTER, ROOT)
    proxy.api.users.reload()
    assert await use(proxy, token) == 200
    for changed in (
        [("test", "tester", hash_secret("new secret"), ["admin"])],
        [(*TESTER[:3], ["reader"])],
        [],
    ):
        write_users(tmp_path, *changed, ROOT)
        proxy.api.users.reload()
        assert await use(proxy, token) == 401
    write_users(tmp_path, TESTER)
    proxy.api.users.reload()
    assert await use(proxy, token) == 200


async def test_keys_change_without_logging_anybody_out(proxy: Proxy) -> None:
    old, new = (derive_key(bytes([number]) * 32, "tokens") for number in (1, 2))
    proxy.api.tokens.use([old])
    token = await token_of(proxy)
    proxy.api.tokens.use([old, new])
    assert await use(proxy, token) == 200
    proxy.api.tokens.use([new, old])
    assert await use(proxy, token) == 200
    reply = await call(proxy, "POST", "/v3/auth/tokens", by_token(token))
    proxy.api.tokens.use([new])
    assert await use(proxy, token) == 401
    assert await use(proxy, reply.headers["X-Subject-Token"]) == 200


async def test_no_secret_is_logged(proxy: Proxy) -> None:
    with structlog.testing.capture_logs() as lines:
        await call(proxy, "POST", "/v3/auth/tokens", by_password(secret="mistyped secret"))
        await call(proxy, "POST", "/v3/auth/tokens", by_password("secret in the wrong field", "x"))
        proxy.clock.now += 1000
        token = await token_of(proxy)
        assert await revoke(proxy, token) == 204
        assert await use(proxy, token) == 401
    text = repr(lines)
    refused = [line for line in lines if line["event"] == "a login was refused"]
    assert [line["user"] for line in refused] == ["test:tester", "unknown"]
    for secret in ("mistyped secret", "wrong field", SECRET, token, _OTHER):
        assert secret not in text


@pytest.mark.parametrize("path", ["/", "/?x"])
async def test_who_knows_only_the_host_is_told_of_all_versions(proxy: Proxy, path: str) -> None:
    async with proxy.client.get(path, allow_redirects=False) as answer:
        assert answer.status == 300
        known = (await answer.json())["versions"]["values"]
    assert [one["id"] for one in known] == ["v3.14", "v2.0"]
    for one in known:
        link = one["links"][0]["href"]
        assert link == str(proxy.client.make_url(f"/{one['id'].partition('.')[0] if 'v3' in one['id'] else 'v2.0'}/"))
        async with proxy.client.get(URL(link).path) as answer:
            assert (await answer.json())["version"] == one
    async with proxy.client.post("/") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_a_name_that_several_users_have_needs_a_project(tmp_path: Directory) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(
        yaml.safe_dump(
            [
                {"account": account, "user": user, "roles": [], "secret_hash": "x"}
                for account, user in (("a", "one"), ("a", "both"), ("b", "both"))
            ]
        )
    )
    users = Users(file)
    assert [users.only_account_of(name) for name in ("one", "both", "nobody")] == ["a", None, None]
