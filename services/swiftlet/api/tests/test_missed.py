"""What a client may say of writes that devices have missed, and whom a metadata server tells of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from swiftlet.api.http.problems import ApiError
from swiftlet.api.requests.missed import (
    BURST,
    MAX_BODY,
    MAX_NAMED,
    PER_S,
    Allowances,
    MissedApi,
    add_missed_route,
    parse,
)
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.api.tests.test_grants import token_of
from swiftlet.auth.identity import Role
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, MemoryCluster
from swiftlet.ring.model import Device

SAID: dict[str, Any] = {
    "account": ACCOUNT,
    "container": "c",
    "policy": 0,
    "missed": [{"device": 3, "objects": ["a", "ä"]}, {"device": 1, "objects": ["a"]}, {"device": 3, "objects": ["b"]}],
}


def test_what_is_said_is_taken() -> None:
    named = parse(json.dumps(SAID).encode())
    assert (named.account, named.container, named.policy) == (ACCOUNT, "c", 0)
    assert named.missed == {3: ["a", "ä", "b"], 1: ["a"]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"account": ""}, "account"),
        ({"container": "a/b"}, "container"),
        ({"policy": -1}, "policy"),
        ({"policy": "0"}, "policy"),
        ({"missed": {}}, "missed"),
        ({"missed": []}, "missed"),
        ({"missed": [3]}, "missed"),
        ({"missed": [{"device": 3}]}, "objects is missing"),
        ({"missed": [{"objects": ["a"]}]}, "device is missing"),
        ({"missed": [{"device": "3", "objects": ["a"]}]}, "device"),
        ({"missed": [{"device": 3, "objects": "a"}]}, "objects"),
        ({"missed": [{"device": 3, "objects": []}]}, "objects"),
        ({"missed": [{"device": 3, "objects": [7]}]}, "objects"),
        ({"missed": [{"device": 3, "objects": ["a" * 1025]}]}, "objects"),
        ({"missed": [{"device": 3, "objects": ["a"], "partition": 7}]}, "'partition' is not a field"),
        ({"missed": [{"device": 3, "objects": ["a"] * MAX_NAMED}, {"device": 4, "objects": ["a"]}]}, "at most 64"),
        ({"partitions": [7]}, "'partitions' is not a field"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(ApiError, match=named) as error:
        parse(json.dumps({**SAID, **change}).encode())
    assert error.value.status == 400


def test_an_account_may_say_so_much_in_a_second() -> None:
    now = [100.0]
    allowances = Allowances(lambda: now[0])
    allowances.take("a", int(BURST))
    allowances.take("b", 1)
    with pytest.raises(ApiError) as error:
        allowances.take("a", 1)
    assert (error.value.status, error.value.headers["Retry-After"]) == (429, "1")
    now[0] += 1
    allowances.take("a", int(PER_S))
    with pytest.raises(ApiError):
        allowances.take("a", 1)
    now[0] += 1000
    allowances.take("a", int(BURST))
    with pytest.raises(ApiError):
        allowances.take("a", 1)


class Told:
    """Notes which devices are to be told of which partitions."""

    def __init__(self) -> None:
        self.noted: set[tuple[int, int, int]] = set()

    def note(self, device: Device, policy: int, partition: int) -> None:
        self.noted.add((device.id, policy, partition))

    def behind(self, policy: int, partition: int) -> frozenset[int]:
        return frozenset()

    def waits(self, device: Device) -> bool:
        return False


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path) as made:
        yield made


def api_of(proxy: Proxy, cluster: MemoryCluster, told: Told) -> MissedApi:
    return MissedApi(proxy.api.tokens, proxy.api, cluster.rings, HASH_PATH, told, Allowances())


async def answered(api: MissedApi, token: str | None, body: bytes) -> tuple[int, str]:
    app = web.Application()
    add_missed_route(app, api)
    headers = {} if token is None else {"X-Auth-Token": token}
    async with TestClient(TestServer(app)) as client:
        answer = await client.post("/v1/missed", data=body, headers=headers)
        return answer.status, await answer.text()


async def test_primaries_are_told_and_others_passed_over(proxy: Proxy, cluster: MemoryCluster) -> None:
    told = Told()
    ring = cluster.rings.objects(0)
    partition = ring.partition_of(HASH_PATH.of(Path(ACCOUNT, "c", "o")))
    primaries = {device.id for device in ring.primaries(partition)}
    missed = [{"device": id_, "objects": ["o", "o"]} for id_ in range(len(ring.devices) + 2)]
    said = json.dumps({**SAID, "missed": missed}).encode()
    status, text = await answered(api_of(proxy, cluster, told), token_of(proxy), said)
    assert (status, json.loads(text)) == (202, {"noted": len(primaries)})
    assert told.noted == {(id_, 0, partition) for id_ in primaries}


async def test_who_may_not_store_objects_there_is_refused(proxy: Proxy, cluster: MemoryCluster) -> None:
    told = Told()
    api, said = api_of(proxy, cluster, told), json.dumps(SAID).encode()
    assert (await answered(api, None, said))[0] == 401
    assert (await answered(api, token_of(proxy, "other:sue"), said))[0] == 403
    assert (await answered(api, token_of(proxy, "test:rita", [Role.READER]), said))[0] == 403
    assert told.noted == set()


async def test_what_can_not_be_taken_is_told(proxy: Proxy, cluster: MemoryCluster) -> None:
    told = Told()
    api, token = api_of(proxy, cluster, told), token_of(proxy)
    assert (await answered(api, token, bytes(MAX_BODY + 1)))[0] == 413
    assert "JSON" in (await answered(api, token, b"x"))[1]
    status, text = await answered(api, token, json.dumps({**SAID, "policy": 99}).encode())
    assert (status, "policy: there is no storage policy with the index 99" in text) == (400, True)
    for _ in range(int(BURST)):
        api.allowances.take(ACCOUNT, 1)
    primary = cluster.rings.objects(0).primaries(
        cluster.rings.objects(0).partition_of(HASH_PATH.of(Path(ACCOUNT, "c", "o")))
    )[0]
    said = json.dumps({**SAID, "missed": [{"device": primary.id, "objects": ["o"]}]}).encode()
    assert (await answered(api, token, said))[0] == 429
    assert told.noted == set()
