"""The front never reads what Python would not say any more: whatever changes, the next answer is the new one."""

from __future__ import annotations

import asyncio
import io
import json
import time
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.large import put_manifest, put_segments
from swiftlet.api.tests.proxy import proxy_of
from swiftlet.auth.identity import Identity, Role
from swiftlet.front.deciding import VALID_S
from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, until
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster

pytestmark = pytest.mark.usefixtures("cluster")
OF_ONE_ANSWER = {"Date", "X-Trans-Id", "X-Openstack-Request-Id"}


async def put(fronted: FrontedProxy, name: str = "c/o", data: bytes = b"data", **headers: str) -> None:
    given = {"Content-Type": "text/plain"} | {key.replace("_", "-"): value for key, value in headers.items()}
    assert (await fronted.proxy.call("PUT", name, given, io.BytesIO(data))).status == 201


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_same_answer_as_pythons(fronted: FrontedProxy, method: str) -> None:
    await put(fronted, X_Object_Meta_Color="blaü", Content_Disposition="inline", Content_Encoding="x")
    # A query makes it cold, this one means nothing.
    cold = await fronted.proxy.call(method, "c/o", query="x=y")
    answer = await fronted.read(method=method)
    assert (answer.status, answer.body) == (200, b"data" if method == "GET" else b"")
    plain = [
        sorted((name, value) for name, value in one.headers.items() if name not in OF_ONE_ANSWER)
        for one in (cold, answer)
    ]
    assert plain[0] == plain[1]
    assert set(answer.headers) >= OF_ONE_ANSWER
    assert answer.headers["X-Trans-Id"] == answer.headers["X-Openstack-Request-Id"]
    assert len(answer.headers["X-Trans-Id"]) == len(cold.headers["X-Trans-Id"])


async def test_empty_and_large(fronted: FrontedProxy) -> None:
    largest = bytes(range(256)) * 4096
    for name, data in (("c/empty", b""), ("c/largest", largest), ("c/larger", largest + b"x")):
        await put(fronted, name, data)
        assert (await fronted.read(name)).body == data
    assert (await fronted.read("c/larger", method="HEAD")).headers["Content-Length"] == "1048577"


async def test_overwritten_posted_and_deleted(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    await put(fronted, data=b"other")
    assert (await fronted.read()).body == b"other"
    assert (await fronted.proxy.call("POST", "c/o", {"X-Object-Meta-A": "b"})).status == 202
    assert (await fronted.read()).headers["X-Object-Meta-A"] == "b"
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 204
    assert (await fronted.proxy.call("GET", "c/o")).status == 404


async def test_container_deleted(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 204
    assert (await fronted.proxy.call("DELETE", "c")).status == 204
    assert (await fronted.proxy.call("GET", "c/o")).status == 404
    assert (await fronted.proxy.call("GET", "c/other")).status == 404


async def test_acl_withdrawn(fronted: FrontedProxy) -> None:
    await put(fronted)
    sue = fronted.proxy.token_of("other:sue")
    for reader in ("other:sue", ".r:*"):
        assert (await fronted.proxy.call("POST", "c", {"X-Container-Read": reader})).status == 204
        await fronted.read(headers=sue)
        assert (await fronted.proxy.call("POST", "c", {"X-Container-Read": ""})).status == 204
        assert (await fronted.proxy.call("GET", "c/o", sue)).status == 403


async def test_acl_withdrawn_by_another_process_of_the_proxy(
    fronted: FrontedProxy, cluster: MemoryCluster, tmp_path: Directory
) -> None:
    """Nobody tells the front: it sees the counter of changes that both processes share."""
    await put(fronted)
    async with proxy_of(cluster, tmp_path, changes=fronted.proxy.api.changes) as other:
        other.clock.now = time.time()
        for _ in range(3):
            assert (await other.call("POST", "c", {"X-Container-Read": "other:sue"})).status == 204
            sue = fronted.proxy.token_of("other:sue")
            assert (await fronted.read(headers=sue)).body == b"data"
            assert (await other.call("POST", "c", {"X-Container-Read": ""})).status == 204
            assert (await fronted.proxy.call("GET", "c/o", sue)).status == 403
            other.clock.now += 1


async def test_account_acl_withdrawn(fronted: FrontedProxy) -> None:
    await put(fronted)
    sue, header = fronted.proxy.token_of("other:sue"), "X-Account-Access-Control"
    assert (await fronted.proxy.call("POST", "", {header: json.dumps({"read-only": ["other"]})})).status == 204
    await fronted.read(headers=sue)
    assert (await fronted.proxy.call("POST", "", {header: ""})).status == 204
    assert (await fronted.proxy.call("GET", "c/o", sue)).status == 403


async def test_token_of_another(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    assert (await fronted.proxy.call("GET", "c/o", {"X-Auth-Token": "AUTH_tkx.y"})).status == 401
    assert (await fronted.proxy.call("GET", "c/o", fronted.proxy.token_of("other:sue", Role.ADMIN))).status == 403
    assert (await fronted.proxy.anonymous("GET", "c/o")).status == 401


async def test_token_revoked(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    headers = {**fronted.proxy.token, "X-Subject-Token": fronted.proxy.token["X-Auth-Token"]}
    async with fronted.proxy.client.delete("/v3/auth/tokens", headers=headers) as response:
        assert response.status == 204
    assert (await fronted.proxy.call("GET", "c/o")).status == 401


async def test_token_revoked_elsewhere(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    tokens = fronted.proxy.api.tokens
    known = tokens.read(fronted.proxy.token["X-Auth-Token"])
    revoked = fronted.proxy.api.revocations.revoked
    began = time.monotonic()
    revoked.add(revoked.revoking(known, int(time.time()), tokens.life_s))
    while (await fronted.proxy.call("GET", "c/o")).status == 200:
        assert time.monotonic() - began < VALID_S + 5.0, "some time for a busy machine"
        await asyncio.sleep(0.01)


async def test_token_expired(fronted: FrontedProxy) -> None:
    await put(fronted)
    tokens = fronted.proxy.api.tokens
    identity = Identity(ACCOUNT, "tester", frozenset({Role.ADMIN}))
    ends = int(time.time()) + 3
    token = {"X-Auth-Token": tokens.text(tokens.fresh(identity, "", expires=ends))}
    statuses = []
    while time.time() < ends + 0.01:
        sent = time.time()
        statuses.append((sent, (await fronted.proxy.call("GET", "c/o", token)).status))
        await asyncio.sleep(0.005)
    assert fronted.answered
    assert (await fronted.proxy.call("GET", "c/o", token)).status == 401
    assert all(status == 200 for sent, status in statuses if sent < ends - 1)


async def test_other_policy(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 204
    assert (await fronted.proxy.call("DELETE", "c")).status == 204
    assert (await fronted.proxy.call("PUT", "c", {"X-Storage-Policy": "silver"})).status in {201, 202}
    await put(fronted, data=b"silver")
    assert (await fronted.read()).body == b"silver"


async def test_policy_changed_by_another_process(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    listings, clock = fronted.proxy.api.listings, fronted.proxy.api.clock
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 204
    cluster = fronted.proxy.cluster
    async with asyncio.timeout(PATIENCE_S):
        for device in cluster.container_devices():
            # A replica with a row would keep its container, and its policy.
            while await cluster.listed(device):  # noqa: ASYNC110 - the last replica is told beside the answer
                await asyncio.sleep(0.005)
    await listings.delete_container(ACCOUNT, CONTAINER, clock.next())
    await listings.put_container(ACCOUNT, CONTAINER, clock.next(), {}, 1, 1)
    # What this process remembers says the old policy, and finds nothing there: then it is asked for again.
    assert (await fronted.proxy.call("GET", "c/o")).status == 404
    await put(fronted, data=b"silver")
    for _ in range(20):
        assert (await fronted.proxy.call("GET", "c/o")).body == b"silver", "whoever answers"
        await asyncio.sleep(0.01)


async def test_what_goes_by_itself_is_read_until_its_time(fronted: FrontedProxy) -> None:
    ends = int(time.time()) + 2
    await put(fronted, X_Delete_At=str(ends))
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await fronted.proxy.call("GET", "c/o")).status == 200:
            assert answer.headers["X-Delete-At"] == str(ends)
            # What Python answers goes by the test's clock.
            fronted.proxy.clock.now = time.time()
            await asyncio.sleep(0.01)
    assert (answer.status, time.time() >= ends) == (404, True)
    before = fronted.answered
    for method in ("GET", "HEAD"):
        assert (await fronted.proxy.call(method, "c/o")).status == 404
    assert fronted.answered == before


async def test_what_is_given_another_time_goes_then(fronted: FrontedProxy) -> None:
    await put(fronted, X_Delete_At="4000000000")
    assert (await fronted.read("c/o")).headers["X-Delete-At"] == "4000000000"
    assert (await fronted.proxy.call("POST", "c/o", {"X-Delete-At": "4000000001"})).status == 202
    assert (await fronted.read("c/o", method="HEAD")).headers["X-Delete-At"] == "4000000001"
    assert (await fronted.proxy.call("POST", "c/o", {"X-Object-Meta-A": "b"})).status == 202
    assert "X-Delete-At" not in (await fronted.read("c/o")).headers


async def test_manifests_and_links_are_left_to_python(fronted: FrontedProxy) -> None:
    await put(fronted, "c/target", b"target")
    await fronted.read("c/target")
    assert (await put_manifest(fronted.proxy, await put_segments(fronted.proxy))).status == 201
    await fronted.is_cold("c/big")
    assert (await fronted.proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/target"}, b"")).status == 201
    assert (await fronted.is_cold("c/link")).body == b"target"
    assert (await fronted.proxy.call("PUT", "c/dlo", {"X-Object-Manifest": "c/target"}, b"")).status == 201
    assert (await fronted.is_cold("c/dlo")).body == b"target"
    assert (await fronted.read("c/target")).body == b"target"


async def test_versions_switched_on(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    assert (await fronted.proxy.call("POST", "c", {"X-Versions-Enabled": "true"})).status == 204
    assert "X-Object-Version-Id" in (await fronted.is_cold("c/o")).headers


async def test_web_site_for_visitors(fronted: FrontedProxy) -> None:
    await put(fronted)
    headers = {"X-Container-Read": ".r:*", "X-Container-Meta-Web-Error": "e"}
    assert (await fronted.proxy.call("POST", "c", headers)).status == 204
    for _ in range(3):
        before = fronted.answered
        assert (await fronted.proxy.anonymous("GET", "c/o")).status == 200
        assert fronted.answered == before


async def test_unused_grants_end(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    running = fronted.running
    holder = False, fronted.proxy.token["X-Auth-Token"].encode(), f"/v1/{ACCOUNT}/c/".encode()
    assert running.front.has(*holder)
    await until(lambda: not running.front.has(*holder))


async def test_used_grants_are_renewed(fronted: FrontedProxy) -> None:
    await put(fronted)
    await fronted.read()
    before, end, count = fronted.answered, time.monotonic() + 2.5 * VALID_S, 0
    while time.monotonic() < end:
        await fronted.proxy.call("GET", "c/o")
        count += 1
        await asyncio.sleep(0.01)
    # The connection was never handed over for want of a grant, but perhaps where the machine stood still for a second.
    assert fronted.answered - before > count / 2
