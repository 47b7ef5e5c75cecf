"""Where an object is, and who may know."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.requests.locations import LocationsApi, add_location_routes
from swiftlet.auth.identity import Identity, Role
from swiftlet.auth.tokens import Tokens
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import ContainerInfo
from swiftlet.names import HashPath, Path
from swiftlet.policy_moves import Phase, PolicyMove
from swiftlet.ring import Ring, RingBuilder
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies
from swiftlet.timestamp import ZERO

Client = TestClient[web.Request, web.Application]
HASH_PATH = HashPath(b"", b"suffix")
TOKENS = Tokens([b"k" * 32])


def make_ring() -> Ring:
    builder = RingBuilder(6, 3, min_part_hours=0)
    for number in range(5):
        builder.add_device(host=f"h{number}", port=6200, device="d", region="r", zone=f"z{number}", weight=1)
    builder.rebalance(500_000)
    return builder.ring


RING = make_ring()


class FakeRings:
    """One object ring, of policy 4."""

    def account(self) -> Ring:
        raise AssertionError("not needed")

    def container(self) -> Ring:
        raise AssertionError("not needed")

    def objects(self, policy: int) -> Ring:
        if policy != 4:
            raise Unavailable(f"the ring object-{policy} is not loaded")
        return RING


async def container_info(account: str, container: str) -> ContainerInfo:
    if container in {phase.value for phase in Phase}:
        move = PolicyMove(4, 5, Phase(container), ZERO, ZERO)
        return ContainerInfo(account, container, ZERO, ZERO, 0, 0, move.policy, {}, move)
    if container not in {"photos", "elsewhere"}:
        raise NotFound(f"/{account}/{container} is not here")
    return ContainerInfo(account, container, ZERO, ZERO, 0, 0, 4 if container == "photos" else 5, {})


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    app = web.Application()
    policies = Policies([PolicySection(index=4, name="gold", default=True)])
    add_location_routes(
        app,
        LocationsApi(
            TOKENS.check, ContainerCache(container_info, container_info, 10), FakeRings(), HASH_PATH, policies
        ),
    )
    async with TestClient(TestServer(app)) as client:
        yield client


def token(account: str = "AUTH_test") -> dict[str, str]:
    return {"X-Auth-Token": TOKENS.issue(Identity(account, "tester", frozenset({Role.READER})))[0]}


async def test_primaries_and_handoffs_of_an_object(client: Client) -> None:
    answer = await client.get("/v1/locations/AUTH_test/photos/a/b%20c", headers=token())
    assert answer.status == 200
    told = await answer.json()
    partition = RING.partition_of(HASH_PATH.of(Path("AUTH_test", "photos", "a/b c")))
    assert told["object"] == "a/b c"
    assert told["partition"] == partition
    assert told["policy"] == {"index": 4, "name": "gold"}
    assert told["ring_version"] == RING.version
    assert [device["host"] for device in told["primaries"]] == [device.host for device in RING.primaries(partition)]
    assert len(told["handoffs"]) == 2
    assert set(told["handoffs"][0]) == {"name", "host", "port", "device", "region", "zone"}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("AUTH_test/photos/o", {}, 401),
        ("AUTH_test/photos/o", {"X-Auth-Token": "AUTH_tkfalse.x"}, 401),
        ("AUTH_other/photos/o", token(), 403),
        ("AUTH_test/absent/o", token(), 404),
        ("AUTH_test/elsewhere/o", token(), 503),
        *((f"AUTH_test/{phase.value}/o", token(), 409) for phase in Phase),
        ("AUTH_test/photos", token(), 400),
        ("AUTH_test/photos/%zz", token(), 412),
    ],
)
async def test_refusals(client: Client, path: str, headers: dict[str, str], status: int) -> None:
    answer = await client.get(URL(f"/v1/locations/{path}", encoded=True), headers=headers)
    assert answer.status == status, await answer.text()
    assert (await answer.text()).strip()
