"""A container that moves between a policy with copies and one of 4+2, with all processes of a store: in each phase its
objects are stored, read, described, changed, listed and deleted, those of earlier phases too.

Nobody moves the objects here: what was stored before `moving` stays where it is, and has to be found there.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator

import pytest

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.phases import set_phase
from e2e.standalone.wire import Client
from swiftlet.front.deciding import VALID_S
from swiftlet.policy_moves import Phase
from swiftlet.web.tests.conftest import eventually

POLICIES = ("usual", "cold")
SIZES = (0, 1000, 3_000_000)
"""Bytes of objects that are stored at once, and of one that is streamed."""
REMEMBERED_S = 2.0
"""Seconds for which proxies remember a container."""
OUTDATED_S = REMEMBERED_S + VALID_S
"""Seconds after which nobody goes by what a container was before all its replicas changed: a grant of the front, which
rests on what a proxy remembers, is valid a little longer.
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        "SWIFTLET_PROXY__CONTAINER_INFO_TTL_S": str(REMEMBERED_S),
        "SWIFTLET_EXPIRER__INTERVAL_S": "1",
        "SWIFTLET_EXPIRER__DELAY_S": "0",
    }
    running = start_cluster(tmp_path_factory.mktemp("phases"), "--policies", "usual,cold=4+2", settings=settings)
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint, cluster.user, cluster.key)


def body_of(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def put(client: Client, container: str, when: str) -> dict[str, bytes]:
    """Objects of all sizes; a small one is repeated, as the native front has a grant for it then."""
    bodies = {f"{when}-{size}": body_of(when, size) for size in SIZES} | {f"{when}-gone": b"gone"}
    for name, body in [*bodies.items(), *list(bodies.items())[:2]]:
        assert client.call("PUT", f"{container}/{name}", {"X-Object-Meta-When": when}, body).status == 201
    return bodies


def check(client: Client, container: str, bodies: dict[str, bytes]) -> None:
    for name, body in bodies.items():
        for method in ("GET", "HEAD", "GET"):
            got = client.call(method, f"{container}/{name}")
            assert (got.status, got.headers["Content-Length"]) == (200, str(len(body))), (name, got)
            assert got.headers["Etag"] == hashlib.md5(body, usedforsecurity=False).hexdigest()
            assert got.body == (body if method == "GET" else b"")
    listed = client.call("GET", container, query="format=json").json()
    assert {row["name"]: row["bytes"] for row in listed} == {name: len(body) for name, body in bodies.items()}
    head = client.call("HEAD", container)
    assert head.headers["X-Container-Object-Count"] == str(len(bodies))
    assert head.headers["X-Container-Bytes-Used"] == str(sum(map(len, bodies.values())))


@pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0)])
def test_clients_see_nothing_of_a_phase_but_the_policy(
    cluster: Cluster, client: Client, source: int, target: int
) -> None:
    container = f"from-{POLICIES[source]}"
    assert client.call("PUT", container, {"X-Storage-Policy": POLICIES[source]}).status == 201
    there = put(client, container, "before")
    check(client, container, there)
    for phase in Phase:
        # Phases that follow each other are in force side by side until the proxies know the newer one.
        set_phase(cluster, client.account, container, source, target, phase)
        check(client, container, there)
        time.sleep(OUTDATED_S)
        policy = POLICIES[source if phase is Phase.ANNOUNCED else target]
        assert client.call("HEAD", container).headers["X-Storage-Policy"] == policy
        check(client, container, there)
        there |= put(client, container, phase.value)
        check(client, container, there)
        before = next(name for name in there if name.endswith("-gone"))
        assert client.call("DELETE", f"{container}/{before}").status == 204
        assert client.call("GET", f"{container}/{before}").status == 404
        assert client.call("DELETE", f"{container}/{before}").status == 404
        del there[before]
        for name in there:
            assert client.call("POST", f"{container}/{name}", {"X-Object-Meta-When": phase.value}).status == 202
        for name in there:
            assert client.call("HEAD", f"{container}/{name}").headers["X-Object-Meta-When"] == phase.value
        overwritten = next(iter(there))
        there[overwritten] = phase.value.encode()
        assert client.call("PUT", f"{container}/{overwritten}", body=there[overwritten]).status == 201
        check(client, container, there)
        listed = client.call("GET", query="format=json").json()
        assert container in {row["name"] for row in listed}
        again = client.call(
            "PUT", container, {"X-Storage-Policy": POLICIES[source if policy != POLICIES[source] else target]}
        )
        assert again.status == 409


def containers_of(client: Client) -> dict[str, int]:
    """How many containers the account has, by policy."""
    headers = client.call("HEAD").headers
    counts = {name: headers.get(f"X-Account-Storage-Policy-{name}-Container-Count", "0") for name in POLICIES}
    return {name: int(count) for name, count in counts.items() if count != "0"}


def test_the_account_and_the_expirer_follow_a_container(cluster: Cluster, client: Client) -> None:
    container = "expiring"
    assert client.call("PUT", container, {"X-Storage-Policy": "usual"}).status == 201
    # It may expire before the container moves on a busy machine, and is gone in the end all the same.
    assert client.call("PUT", f"{container}/late", {"X-Delete-After": "20"}, b"x").status == 201
    for phase in (Phase.ANNOUNCED, Phase.MOVING):
        set_phase(cluster, client.account, container, 0, 1, phase)
        time.sleep(OUTDATED_S)
    assert client.call("PUT", f"{container}/new", {"X-Delete-After": "5"}, b"xy").status == 201
    names = [row["name"] for row in client.call("GET", query="format=json").json()]
    policies = [client.call("HEAD", name).headers["X-Storage-Policy"] for name in names]
    assert policies[names.index(container)] == "cold"
    eventually(lambda: containers_of(client) == {name: policies.count(name) for name in set(policies)}, 60)
    eventually(lambda: client.call("GET", container).body == b"", 90)
    for name in ("late", "new"):
        assert client.call("GET", f"{container}/{name}").status == 404
