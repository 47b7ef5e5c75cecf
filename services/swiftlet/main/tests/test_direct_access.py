"""A guest beside a proxy: what one writes the other reads, and what a grant does not say nobody gets."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest
from swiftlet_native import ObjectWire

from swiftlet.client.bodies import BytesBody
from swiftlet.client.values import ObjectRequest
from swiftlet.main.tests.direct_cluster import DirectCluster
from swiftlet.main.tests.test_direct_way import Counted, make_container, way_to
from swiftlet.names import Path
from swiftlet.native_values import info_of
from swiftlet.servers.objects import object_server
from swiftlet.servers.objects.pending_delivery import DeliveryTimes
from swiftlet.testing.guest import Guest
from swiftlet.testing.ways.conformance import read

DATA = b"what is stored directly"
ETAG = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
ASKED: dict[str, Any] = {"account": "AUTH_test", "container": "c", "operations": ["get", "put", "delete"]}
OBJECT = Path("AUTH_test", "c", "a/b c")


@pytest.fixture
async def cluster(tmp_path: Directory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DirectCluster]:
    # Rows of guests are those that nobody acknowledges; here nobody waits ten seconds for them.
    monkeypatch.setattr(object_server, "DeliveryTimes", functools.partial(DeliveryTimes, pending_for_s=0.0))
    async with DirectCluster(tmp_path).running() as cluster:
        assert (await cluster.http("PUT", "c"))[0] == 201
        yield cluster


async def guest_of(cluster: DirectCluster, **more: object) -> Guest:
    return await Guest.with_grant(cluster.session, cluster.url, cluster.token, {**ASKED, **more})


async def names_in(cluster: DirectCluster) -> list[str]:
    status, body = await cluster.http("GET", "c?format=json")
    assert status == 200
    return [row["name"] for row in json.loads(body)]


async def listed(cluster: DirectCluster, names: list[str]) -> None:
    async with asyncio.timeout(30):
        while await names_in(cluster) != names:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)


async def test_what_a_guest_stores_the_proxy_reads_lists_and_deletes(cluster: DirectCluster) -> None:
    guest = await guest_of(cluster)
    timestamp = guest.clock.next().value
    for replica, device in enumerate(guest.devices(OBJECT)):
        reply = await guest.put(device, OBJECT, DATA, ETAG, timestamp, row=1 << replica)
        assert (reply.outcome, ObjectWire.written(reply.header)) == ("ok", (True, True))
        assert reply.ring_version in {0, guest.ring.version}
    assert await cluster.http("GET", "c/a/b%20c") == (200, DATA)
    await listed(cluster, ["a/b c"])
    assert (await cluster.http("DELETE", "c/a/b%20c"))[0] == 204
    assert {(await guest.get(device, OBJECT)).outcome for device in guest.devices(OBJECT)} == {"NotFound"}
    await listed(cluster, [])


async def test_what_the_proxy_stores_a_guest_reads_and_deletes(cluster: DirectCluster) -> None:
    assert (await cluster.http("PUT", "c/a/b%20c", DATA))[0] == 201
    guest = await guest_of(cluster)
    for device in guest.devices(OBJECT):
        reply = await guest.get(device, OBJECT)
        assert (reply.outcome, reply.body) == ("ok", DATA)
        assert info_of(ObjectWire.found(reply.header)[0]).etag == ETAG
    timestamp = guest.clock.next().value
    for replica, device in enumerate(guest.devices(OBJECT)):
        assert (await guest.delete(device, OBJECT, timestamp, row=1 << replica)).outcome == "ok"
    assert (await cluster.http("GET", "c/a/b%20c"))[0] == 404
    await listed(cluster, [])


async def test_a_grant_says_how_far_it_goes(cluster: DirectCluster) -> None:
    guest = await guest_of(cluster, operations=["get", "put"], prefix="a/", max_size=30)
    device = guest.devices(OBJECT)[0]
    elsewhere = Path("AUTH_test", "c", "b")
    timestamp = guest.clock.next().value
    assert (await guest.put(device, OBJECT, DATA, ETAG, timestamp)).outcome == "ok"
    assert (await guest.delete(device, OBJECT, timestamp + 1)).outcome == "Forbidden"
    assert (await guest.put(guest.devices(elsewhere)[0], elsewhere, DATA, ETAG, timestamp)).outcome == "Forbidden"
    assert (await guest.put(device, OBJECT, DATA + DATA, ETAG, timestamp)).outcome == "Forbidden"
    far = timestamp + (3600 * 100_000 << 14)
    assert (await guest.put(device, OBJECT, DATA, ETAG, far)).outcome == "ClockDiffers"
    for internal in (
        ObjectWire.policies(device.device),
        ObjectWire.acknowledge(device.device, [(guest.place(OBJECT), timestamp)]),
        ObjectWire.revoke(device.device, b"AUTH_test", b"", 1),
        ObjectWire.remove(device.device, guest.place(OBJECT), (guest.place(OBJECT)[2], 1, timestamp, 0, 0)),
    ):
        assert (await guest.ask(device, OBJECT, internal)).outcome == "Forbidden"


async def test_a_grant_is_of_one_session(cluster: DirectCluster) -> None:
    one, other = await guest_of(cluster), await guest_of(cluster)
    device = one.devices(OBJECT)[0]
    one.granted["grant"] = other.granted["grant"]
    assert (await one.get(device, OBJECT)).outcome == "Unauthorized"


async def test_a_session_lasts_for_many_grants_and_its_secret_is_told_once(cluster: DirectCluster) -> None:
    guest = await guest_of(cluster, operations=["get"])
    device = guest.devices(OBJECT)[0]
    assert (await guest.put(device, OBJECT, DATA, ETAG, guest.clock.next().value)).outcome == "Forbidden"
    session = guest.granted["session"]["token"]
    status, more = await cluster.ask({**ASKED, "session": session})
    assert (status, more["session"]) == (200, None)
    guest.granted["grant"] = more["grant"]
    assert (await guest.put(device, OBJECT, DATA, ETAG, guest.clock.next().value)).outcome == "ok"


async def test_revoked_grants_count_no_more_and_later_ones_do(cluster: DirectCluster) -> None:
    guest = await guest_of(cluster)
    device = guest.devices(OBJECT)[0]
    assert (await guest.get(device, OBJECT)).outcome == "NotFound"
    url, headers = f"{cluster.url}/v1/grants/AUTH_test", {"X-Auth-Token": cluster.token}
    async with cluster.session.delete(url, headers=headers) as answer:
        assert answer.status == 200
        told = await answer.json()
    assert (told["servers"], told["unreached"]) == (1, {})
    assert (await guest.get(device, OBJECT)).outcome == "Unauthorized"
    async with asyncio.timeout(30):
        while (await (await guest_of(cluster)).get(device, OBJECT)).outcome != "NotFound":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    strangers = {"X-Auth-Token": await cluster.login("other:sue")}
    async with cluster.session.delete(url, headers=strangers) as answer:
        assert answer.status == 403


async def test_a_server_that_was_away_hears_of_a_revocation_when_it_is_back(cluster: DirectCluster) -> None:
    guest = await guest_of(cluster)
    device = guest.devices(OBJECT)[0]
    assert (await guest.get(device, OBJECT)).outcome == "NotFound"
    await cluster.stop(cluster.objects)
    url, headers = f"{cluster.url}/v1/grants/AUTH_test", {"X-Auth-Token": cluster.token}
    async with cluster.session.delete(url, headers=headers) as answer:
        assert answer.status == 202
        told = await answer.json()
    assert len(told["unreached"]) == told["servers"] == 1
    assert told["ended_by"] > told["before"]
    await cluster.serve_objects(0)
    async with asyncio.timeout(60):
        while (await guest.get(device, OBJECT)).outcome != "Unauthorized":  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_right_that_a_proxy_takes_away_counts_no_more_at_devices(cluster: DirectCluster) -> None:
    assert (await cluster.http("PUT", "d"))[0] == 201
    assert (await cluster.http("POST", "c", headers={"X-Container-Write": "other:sue"}))[0] == 204
    sue = await cluster.login("other:sue")
    guest = await Guest.with_grant(cluster.session, cluster.url, sue, {**ASKED, "operations": ["put"]})
    device, timestamp = guest.devices(OBJECT)[0], guest.clock.next().value
    assert (await guest.put(device, OBJECT, DATA, ETAG, timestamp)).outcome == "ok"
    assert (await cluster.http("POST", "d", headers={"X-Container-Read": "other:sue"}))[0] == 204
    assert (await guest.put(device, OBJECT, DATA, ETAG, timestamp)).outcome == "ok", "another container"
    assert (await cluster.http("POST", "c", headers={"X-Container-Write": ""}))[0] == 204
    async with asyncio.timeout(30):
        while (await guest.put(device, OBJECT, DATA, ETAG, timestamp)).outcome != "Unauthorized":  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_key_that_goes_takes_grants_with_it(cluster: DirectCluster) -> None:
    guest = await guest_of(cluster)
    device = guest.devices(OBJECT)[0]
    assert (await guest.get(device, OBJECT)).outcome == "NotFound"
    cluster.key_file.write_text("another key of the tests, which is long enough too")
    async with asyncio.timeout(30):
        while (await guest.get(device, OBJECT)).outcome != "Unauthorized":  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)


async def test_only_who_may_do_it_is_granted_it(cluster: DirectCluster) -> None:
    rita, sue = await cluster.login("test:rita"), await cluster.login("other:sue")
    assert (await cluster.ask({**ASKED, "operations": ["get", "head"]}, rita))[0] == 200
    assert (await cluster.ask(ASKED, rita))[0] == 403
    assert (await cluster.ask({**ASKED, "operations": ["get"]}, sue))[0] == 403
    assert (await cluster.ask(ASKED, "AUTH_tkwrong.x"))[0] == 401
    assert (await cluster.ask({**ASKED, "container": "d"}))[0] == 404
    assert (await cluster.http("POST", "c", headers={"X-Container-Read": "other:sue"}))[0] == 204
    async with asyncio.timeout(30):
        while (await cluster.ask({**ASKED, "operations": ["get"]}, sue))[0] != 200:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)
    assert (await cluster.ask(ASKED, sue))[0] == 403


async def test_a_user_that_is_removed_is_granted_nothing(cluster: DirectCluster) -> None:
    assert (await cluster.ask(ASKED))[0] == 200
    cluster.users = cluster.users[1:]
    cluster.write_users()
    async with asyncio.timeout(30):
        while (await cluster.ask(ASKED))[0] != 401:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)


async def test_where_a_quota_applies_a_grant_has_a_part_of_it(cluster: DirectCluster) -> None:
    assert (await cluster.http("POST", "c", headers={"X-Container-Meta-Quota-Count": "640"}))[0] == 204
    async with asyncio.timeout(30):
        while (granted := (await cluster.ask(ASKED))[1])["objects"] is None:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)
    assert granted["objects"] == 10, "one part in 64 of what is left"
    guest = await guest_of(cluster, objects=1)
    assert guest.granted["objects"] == 1
    device, timestamp = guest.devices(OBJECT)[0], guest.clock.next().value
    assert (await guest.put(device, OBJECT, DATA, ETAG, timestamp)).outcome == "ok"
    assert (await guest.put(device, OBJECT, DATA, ETAG, timestamp)).outcome == "Forbidden"
    assert (await cluster.http("POST", "c", headers={"X-Container-Meta-Quota-Count": "20"}))[0] == 204
    async with asyncio.timeout(30):
        while (await cluster.ask(ASKED))[0] != 413:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)


async def test_versioned_containers_are_left_to_proxies(cluster: DirectCluster) -> None:
    assert (await cluster.http("POST", "c", headers={"X-Versions-Enabled": "true"}))[0] == 204
    for operations in (["get"], ["put"]):
        async with asyncio.timeout(30):
            while (await cluster.ask({**ASKED, "operations": operations}))[0] != 409:  # noqa: ASYNC110 - looking is cheap
                await asyncio.sleep(0.02)


async def test_rings_are_handed_out_when_they_have_changed(cluster: DirectCluster) -> None:
    url, headers = f"{cluster.url}/v1/rings/gold", {"X-Auth-Token": cluster.token}
    async with cluster.session.get(url, headers=headers) as answer:
        assert (answer.status, bool(await answer.read())) == (200, True)
        etag = answer.headers["ETag"]
    async with cluster.session.get(url, headers={**headers, "If-None-Match": etag}) as answer:
        assert (answer.status, answer.headers["ETag"]) == (304, etag)
    async with cluster.session.get(f"{cluster.url}/v1/rings/7", headers=headers) as answer:
        assert answer.status == 404
    async with cluster.session.get(url) as answer:
        assert answer.status == 401


async def test_the_ring_of_a_container_is_told_to_who_may_use_it(cluster: DirectCluster) -> None:
    assert (await cluster.http("PUT", "of"))[0] == 201
    url = f"{cluster.url}/v1/rings"

    async def asked(token: str | None, **query: str) -> tuple[int, str, str]:
        headers = {} if token is None else {"X-Auth-Token": token}
        async with cluster.session.get(url, params=query, headers=headers) as answer:
            text = await answer.read()
            return answer.status, answer.headers.get("X-Policy-Index", ""), text.decode(errors="replace")

    mine = {"account": "AUTH_test", "container": "of"}
    status, policy, _ = await asked(cluster.token, **mine)
    assert (status, policy) == (200, "0")
    assert (await asked(None, **mine))[0] == 401
    assert (await asked(await cluster.login("other:sue"), **mine))[0] == 403
    assert (await asked(cluster.token, account="AUTH_test", container="none"))[0] == 404
    unnamed: tuple[dict[str, str], ...] = ({}, {"account": "a"})
    slash = {**mine, "container": "a/b"}
    for wrong, expected, named in (*((one, 400, "container") for one in unnamed), (slash, 412, "%2F")):
        status, _, text = await asked(cluster.token, **wrong)
        assert (status, named in text) == (expected, True), text


async def test_a_guest_encrypts_where_the_cluster_does(tmp_path: Directory) -> None:
    async with DirectCluster(tmp_path, encryption="required", rdma="off").running() as cluster:
        assert (await cluster.http("PUT", "c"))[0] == 201
        guest = await Guest.with_grant(cluster.session, cluster.url, cluster.token, ASKED, encrypted=True)
        device, timestamp = guest.devices(OBJECT)[0], guest.clock.next().value
        assert (await guest.put(device, OBJECT, DATA, ETAG, timestamp)).outcome == "ok"
        plain = await Guest.with_grant(cluster.session, cluster.url, cluster.token, ASKED)
        with pytest.raises(ConnectionError, match="have to be encrypted"):
            await plain.get(device, OBJECT)


async def test_the_client_encrypts_where_the_cluster_does(tmp_path: Directory) -> None:
    async with DirectCluster(tmp_path, encryption="required", rdma="off").running() as cluster:
        await make_container(cluster, "c")
        way = way_to(cluster)
        with Counted(cluster, way) as counted:
            await way.put(ObjectRequest("c", "a"), BytesBody(DATA))
            assert await read(way, ObjectRequest("c", "a")) == DATA
        assert counted.devices >= 4
        assert not [line for line in counted.http if "AUTH_test" in line]
        await way.close()
