"""ACLs over HTTP: who gets in, with which status those are refused who don't, and who sees which header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path as Directory

import pytest

from swiftlet.api.context import fresh_cache
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster

READ, WRITE, ACCOUNT_ACL = "X-Container-Read", "X-Container-Write", "X-Account-Access-Control"


async def share(proxy: Proxy, **acls: str) -> None:
    """Set the container's ACLs: read=..., write=..."""
    headers = {f"X-Container-{name.capitalize()}": value for name, value in acls.items()}
    assert (await proxy.call("POST", "c", headers)).status == 204


async def share_account(proxy: Proxy, acl: Mapping[str, list[str]]) -> None:
    assert (await proxy.call("POST", "", {ACCOUNT_ACL: json.dumps(acl)})).status == 204


async def test_an_acl_is_kept_in_canonical_form_and_removed_when_empty(proxy: Proxy) -> None:
    await share(proxy, read=" .referrer : * , .rlistings", write="a:b,, c")
    shown = (await proxy.call("HEAD", "c")).headers
    assert (shown[READ], shown[WRITE]) == (".r:*,.rlistings", "a:b,c")
    assert (await proxy.call("GET", "c")).headers[READ] == ".r:*,.rlistings"
    await share(proxy, read="")
    assert (await proxy.call("POST", "c", {"X-Remove-Container-Write": "x"})).status == 204
    shown = (await proxy.call("HEAD", "c")).headers
    assert READ not in shown
    assert WRITE not in shown


async def test_an_acl_can_come_with_the_container(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "new", {READ: ".r:*"})).status == 201
    assert (await proxy.call("PUT", "new/o", data=b"x")).status == 201
    assert (await proxy.anonymous("GET", "new/o")).body == b"x"


@pytest.mark.parametrize(
    ("header", "value"), [(READ, ".r:"), (READ, ".x:y"), (WRITE, ".r:*"), (WRITE, ".referrer:www.example.com")]
)
@pytest.mark.parametrize(("method", "path"), [("PUT", "new"), ("POST", "c")])
async def test_an_acl_that_is_none_is_400(proxy: Proxy, method: str, path: str, header: str, value: str) -> None:
    answer = await proxy.call(method, path, {header: value})
    assert answer.status == 400
    assert value in answer.body.decode()
    assert READ not in (await proxy.call("HEAD", "c")).headers


async def test_strangers_get_401_without_and_403_with_a_token_and_learn_nothing(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    stranger = proxy.token_of("other:eve", Role.ADMIN)
    for path in ("", "c", "c/o", "c/missing", "missing", "missing/o"):
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            refused = await proxy.anonymous(method, path)
            assert refused.status == 401
            assert refused.headers["WWW-Authenticate"] == f'Swift realm="{ACCOUNT}"'
            assert (await proxy.call(method, path, stranger)).status == 403
    assert (await proxy.call("GET", "c/o")).body == b"data"


async def test_a_bad_token_does_not_count_as_none(proxy: Proxy) -> None:
    await share(proxy, read=".r:*")
    await proxy.cluster.put(2)
    assert (await proxy.anonymous("GET", "c/o", {"X-Auth-Token": "AUTH_tkbad"})).status == 401


async def test_anybody_reads_what_all_referrers_may_read(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    await share(proxy, read=".r:*")
    assert (await proxy.anonymous("GET", "c/o")).body == b"data"
    assert (await proxy.anonymous("HEAD", "c/o")).status == 200
    assert (await proxy.anonymous("GET", "c/missing")).status == 404
    assert (await proxy.anonymous("GET", "c")).status == 401
    for method in ("PUT", "POST", "DELETE", "COPY"):
        assert (await proxy.anonymous(method, "c/o", {"Destination": "c/p"})).status == 401
    assert (await proxy.call("GET", "c/o", proxy.token_of("other:eve"))).body == b"data"


async def test_rlistings_lists_and_shows_no_acl(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    key = {"X-Container-Meta-Temp-URL-Key": "secret", "X-Container-Meta-Color": "red"}
    assert (await proxy.call("POST", "c", {READ: ".r:*,.rlistings", WRITE: "x", **key})).status == 204
    for method in ("GET", "HEAD"):
        answer = await proxy.anonymous(method, "c")
        assert answer.status in {200, 204}
        assert answer.headers["X-Container-Meta-Color"] == "red"
        assert not {READ, WRITE, "X-Container-Meta-Temp-Url-Key"} & set(answer.headers)
    assert (await proxy.anonymous("POST", "c")).status == 401
    assert (await proxy.call("HEAD", "c")).headers["X-Container-Meta-Temp-Url-Key"] == "secret"


async def test_rlistings_alone_gives_nothing(proxy: Proxy) -> None:
    await share(proxy, read=".rlistings")
    assert (await proxy.anonymous("GET", "c")).status == 401


async def test_referrers(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    await share(proxy, read=".r:.example.com,.r:-thief.example.com")
    for referer, status in (
        ("http://www.example.com/page", 200),
        ("http://thief.example.com/", 401),
        ("http://example.org/", 401),
        ("http://[", 401),
    ):
        assert (await proxy.anonymous("GET", "c/o", {"Referer": referer})).status == status
    assert (await proxy.anonymous("GET", "c/o")).status == 401


@pytest.mark.parametrize("grantee", ["other", "other:sue", "other:*", "*:sue", "*:*"])
async def test_named_users_read_and_list(proxy: Proxy, grantee: str) -> None:
    await proxy.cluster.put(2)
    await share(proxy, read=grantee)
    sue = proxy.token_of("other:sue")
    assert (await proxy.call("GET", "c/o", sue)).body == b"data"
    assert (await proxy.call("GET", "c", sue)).status == 200
    assert READ not in (await proxy.call("HEAD", "c", sue)).headers
    assert (await proxy.call("PUT", "c/o", sue, b"x")).status == 403
    assert (await proxy.call("GET", "", sue)).status == 403
    assert (await proxy.anonymous("GET", "c/o")).status == 401


async def test_named_users_write_objects_and_nothing_else(proxy: Proxy) -> None:
    await share(proxy, write="other:sue")
    sue = proxy.token_of("other:sue")
    assert (await proxy.call("PUT", "c/o", sue, b"x")).status == 201
    assert (await proxy.call("POST", "c/o", {**sue, "X-Object-Meta-A": "b"})).status == 202
    assert (await proxy.call("GET", "c/o", sue)).status == 403
    assert (await proxy.call("DELETE", "c/o", sue)).status == 204
    for method in ("PUT", "POST", "DELETE", "GET"):
        assert (await proxy.call(method, "c", sue)).status == 403
    assert (await proxy.call("PUT", "c/o", proxy.token_of("other:bob"), b"x")).status == 403


async def test_users_of_the_account_without_a_role_need_an_acl_too(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    guest, reader = proxy.token_of("test:guest"), proxy.token_of("test:reader", Role.READER)
    assert (await proxy.call("GET", "c/o", guest)).status == 403
    assert (await proxy.call("PUT", "c/o", reader, b"x")).status == 403
    await share(proxy, read="test:guest", write="test:reader")
    assert (await proxy.call("GET", "c/o", guest)).status == 200
    assert (await proxy.call("PUT", "c/o", reader, b"x")).status == 201


async def test_a_changed_acl_counts_at_once_in_its_process(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    for read, status in ((".r:*", 200), ("", 401), (".r:*", 200)):
        await share(proxy, read=read)
        assert (await proxy.anonymous("GET", "c/o")).status == status


async def test_only_owners_set_acls_and_keys(proxy: Proxy) -> None:
    user = proxy.token_of("test:user", Role.USER)
    headers = {READ: ".r:*", "X-Container-Meta-Temp-URL-Key": "k", "X-Container-Meta-Color": "red", **user}
    assert (await proxy.call("POST", "c", headers)).status == 204
    assert (await proxy.call("PUT", "c", headers)).status == 202
    shown = (await proxy.call("HEAD", "c")).headers
    assert shown["X-Container-Meta-Color"] == "red"
    assert READ not in shown
    assert "X-Container-Meta-Temp-Url-Key" not in shown
    assert (await proxy.call("POST", "c", {READ: ".r:*"})).status == 204
    assert READ not in (await proxy.call("HEAD", "c", user)).headers
    assert (await proxy.call("HEAD", "c", proxy.token_of("x:y", Role.RESELLER_ADMIN))).headers[READ] == ".r:*"


async def test_copies_need_both_rights(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    assert (await proxy.call("PUT", "to")).status == 201
    sue = proxy.token_of("other:sue")
    steps = [({}, {}, 403), ({READ: "other"}, {}, 403), ({READ: ""}, {WRITE: "other"}, 403)]
    for source, destination, status in [*steps, ({READ: "other"}, {WRITE: "other"}, 201)]:
        assert (await proxy.call("POST", "c", source)).status == 204
        assert (await proxy.call("POST", "to", destination)).status == 204
        assert (await proxy.call("COPY", "c/o", {**sue, "Destination": "to/o"})).status == status
        assert (await proxy.call("PUT", "to/o", {**sue, "X-Copy-From": "c/o"})).status == status
    assert (await proxy.call("GET", "to/o")).body == b"data"


async def test_segments_are_read_with_the_readers_rights(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "parts")).status == 201
    assert (await proxy.call("PUT", "parts/1", data=b"part")).status == 201
    manifest = json.dumps([{"path": "/parts/1"}]).encode()
    assert (await proxy.call("PUT", "c/slo", data=manifest, query="multipart-manifest=put")).status == 201
    assert (await proxy.call("PUT", "c/dlo", {"X-Object-Manifest": "parts/1"})).status == 201
    await share(proxy, read=".r:*")
    assert (await proxy.anonymous("GET", "c/slo")).status == 409
    assert (await proxy.anonymous("GET", "c/dlo")).status == 401
    assert (await proxy.call("POST", "parts", {READ: ".r:*"})).status == 204
    assert (await proxy.anonymous("GET", "c/slo")).body == b"part"
    assert (await proxy.anonymous("GET", "c/dlo")).status == 401
    assert (await proxy.call("POST", "parts", {READ: ".r:*,.rlistings"})).status == 204
    assert (await proxy.anonymous("GET", "c/dlo")).body == b"part"


async def test_account_acls(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    await share_account(proxy, {"read-only": ["r"], "read-write": ["w:sue"], "admin": ["a"]})
    shown = (await proxy.call("HEAD", "")).headers[ACCOUNT_ACL]
    assert shown == '{"admin":["a"],"read-only":["r"],"read-write":["w:sue"]}'
    reader, writer, admin = (proxy.token_of(login) for login in ("r:x", "w:sue", "a:y"))
    for token in (reader, writer, admin):
        for path in ("", "c", "c/o"):
            assert (await proxy.call("GET", path, token)).status in {200, 204}
    for token, status in ((reader, 403), (writer, 201), (admin, 201)):
        assert (await proxy.call("PUT", "c/o", token, b"x")).status == status
    assert (await proxy.call("PUT", "new", reader)).status == 403
    assert (await proxy.call("PUT", "new", {**writer, READ: ".r:*"})).status == 201
    assert READ not in (await proxy.call("HEAD", "new", admin)).headers
    for token, status in ((reader, 403), (writer, 403), (admin, 204)):
        assert (await proxy.call("POST", "", {**token, "X-Account-Meta-A": "b"})).status == status
    assert ACCOUNT_ACL not in (await proxy.call("HEAD", "", writer)).headers
    assert ACCOUNT_ACL in (await proxy.call("HEAD", "", admin)).headers
    assert (await proxy.call("POST", "new", {**admin, READ: ".r:*"})).status == 204
    assert (await proxy.call("HEAD", "new", admin)).headers[READ] == ".r:*"
    for method in ("PUT", "DELETE"):
        assert (await proxy.call(method, "", admin)).status == 403
    await share_account(proxy, {})
    assert ACCOUNT_ACL not in (await proxy.call("HEAD", "")).headers
    assert (await proxy.call("GET", "c/o", reader)).status == 403


@pytest.mark.parametrize("acl", ["{", '{"write":[]}', '{"admin":"x"}', "[" * 5000])
async def test_an_account_acl_that_is_none_is_400(proxy: Proxy, acl: str) -> None:
    answer = await proxy.call("POST", "", {ACCOUNT_ACL: acl})
    assert answer.status == 400
    assert b"X-Account-Access-Control invalid" in answer.body


async def test_the_own_users_cost_no_look_at_any_acl(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await proxy.cluster.put(2)
    asked: list[str] = []
    listings = proxy.cluster.listings
    account_info, container_info = listings.account_info, listings.container_info

    async def of_account(account: str) -> object:
        asked.append(account)
        return await account_info(account)

    async def of_container(account: str, container: str) -> object:
        asked.append(container)
        return await container_info(account, container)

    monkeypatch.setattr(fresh_cache, "FRESH_S", 1000.0)
    monkeypatch.setattr(proxy.api.accounts, "_fetch", of_account)
    monkeypatch.setattr(proxy.api.containers, "_fetch", of_container)
    for _ in range(3):
        assert (await proxy.call("GET", "c/o")).status == 200
        assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
    # The account for its quota, once.
    assert asked == ["c", ACCOUNT]
    assert (await proxy.call("GET", "c/o", proxy.token_of("other:eve"))).status == 403
    assert (await proxy.call("GET", "c/o", proxy.token_of("other:eve"))).status == 403
    assert asked == ["c", ACCOUNT]


async def seen_by(proxy: Proxy, other: Proxy) -> None:
    """What one of them is told of rights, and of rights no more, decides what the other does."""
    sue = proxy.token_of("other:sue")
    assert (await other.anonymous("GET", "c/o")).status == 401
    assert (await other.call("PUT", "c/o", sue, b"x")).status == 403
    for _ in range(2):
        await share(proxy, read=".r:*", write="other:sue")
        assert (await other.anonymous("GET", "c/o")).status == 200
        assert (await other.call("PUT", "c/o", sue, b"x")).status == 201
        await share(proxy, read="", write="")
        assert (await other.anonymous("GET", "c/o")).status == 401
        assert (await other.call("PUT", "c/o", sue, b"x")).status == 403
        await share_account(proxy, {"read-write": ["other"]})
        assert (await other.call("PUT", "c/o", sue, b"x")).status == 201
        await share_account(proxy, {"read-write": []})
        assert (await other.call("PUT", "c/o", sue, b"x")).status == 403


async def test_what_one_process_of_a_proxy_is_told_all_know_at_once(
    proxy: Proxy, cluster: MemoryCluster, tmp_path: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put(2)
    monkeypatch.setattr(fresh_cache, "FRESH_S", 1000.0)
    async with proxy_of(cluster, tmp_path, changes=proxy.api.changes) as other:
        await seen_by(proxy, other)


async def test_what_another_proxy_is_told_is_known_when_what_was_known_is_too_old(
    proxy: Proxy, cluster: MemoryCluster, tmp_path: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put(2)
    async with proxy_of(cluster, tmp_path) as other:
        monkeypatch.setattr(fresh_cache, "FRESH_S", 0.0)
        await seen_by(proxy, other)
        await share(proxy, read=".r:*")
        assert (await other.anonymous("GET", "c/o")).status == 200
        monkeypatch.setattr(fresh_cache, "FRESH_S", 1000.0)
        await share(proxy, read="")
        assert (await other.anonymous("GET", "c/o")).status == 200, "not asked for again before that"


async def test_strangers_do_not_make_a_proxy_forget(
    proxy: Proxy, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put(2)
    assert (await proxy.call("GET", "c/o")).status == 200
    monkeypatch.setattr(fresh_cache, "FRESH_S", 0.0)
    with cluster.databases_down(*cluster.container_devices()):
        assert (await proxy.anonymous("GET", "c/o")).status in {401, 503}
        assert (await proxy.call("GET", "c/o")).status == 200
