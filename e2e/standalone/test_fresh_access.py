"""How soon rights count: in all workers of a proxy at once, in another one within a second, with the front and without.

Many connections reach all workers of a proxy, since the system deals them out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import pytest

from e2e.standalone.cluster import START_WITHIN_S, Cluster, end_with_us, environment
from e2e.standalone.conftest import Stores
from e2e.standalone.wire import Client
from swiftlet.placement.listing_changes import FEW

ACCOUNT = "AUTH_test"
CONNECTIONS = 16
WITHIN_S = 1.0
SLACK_S = 1.5
"""What one of three container servers may add that has yet to write what the other two have acknowledged."""
ROUNDS = int(os.environ.get("E2E_ROUNDS", "3"))
SAME = 3
"""How often all connections are asked again, and are answered the same."""
BODY = b"some bytes"


@dataclass
class Readers:
    """Connections to one proxy that ask for one object, each for itself."""

    address: tuple[str, int]
    path: str
    headers: dict[str, str]
    connections: list[HTTPConnection] = field(default_factory=list)

    latest: dict[int, float] = field(default_factory=dict)
    """When the last request began that was answered with a status, by the clock."""

    def statuses(self) -> set[int]:
        """What all of them are answered now."""
        while len(self.connections) < CONNECTIONS:
            self.connections.append(HTTPConnection(*self.address, timeout=30))
        found = set()
        for connection in self.connections:
            began = time.monotonic()
            connection.request("GET", self.path, headers=self.headers)
            with connection.getresponse() as answer:
                answer.read()
                found.add(answer.status)
                self.latest[answer.status] = began
        return found

    def until(self, status: int) -> float:
        """Seconds until all of them are answered this."""
        began = time.monotonic()
        while self.statuses() != {status}:
            assert time.monotonic() - began < 30, f"not all of them are answered {status}"
            time.sleep(0.06)
        return time.monotonic() - began

    def close(self) -> None:
        while self.connections:
            self.connections.pop().close()


@pytest.fixture(scope="module")
def cluster(stores: Stores) -> Cluster:
    """A store with two workers of its proxy, one of which may be killed."""
    return stores.whole()


@pytest.fixture(scope="module")
def other(cluster: Cluster) -> Iterator[tuple[str, int]]:
    """Yield the address of another proxy of the same store, which shares no memory with the first one."""
    port = int(cluster.services["proxy"]["port"]) + 10
    ports = {"SWIFTLET_PROXY__PORT": str(port), "SWIFTLET_PROXY__MANAGEMENT_PORT": str(port + 1)}
    log = Path(cluster.data).parent / "other-proxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*cluster.services["proxy"]["command"], *end_with_us()],
            env={**environment(), **cluster.settings, **ports},
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    deadline = time.monotonic() + START_WITHIN_S
    while True:
        assert time.monotonic() < deadline, log.read_text()
        assert process.poll() is None, log.read_text()
        with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection, suppress(OSError):
            connection.request("GET", "/readyz")
            with connection.getresponse() as answer:
                if answer.status == 200:
                    break
        time.sleep(0.05)
    yield "127.0.0.1", port
    process.terminate()
    assert process.wait(60) == 0


@pytest.fixture(scope="module")
def here(cluster: Cluster) -> tuple[str, int]:
    return "127.0.0.1", int(cluster.services["proxy"]["port"])


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint, cluster.user, cluster.key)


@pytest.fixture
def path(client: Client) -> str:
    """An object's path from `/v1` on."""
    name = f"fresh-{uuid.uuid4().hex[:12]}"
    assert client.call("PUT", name).status == 201
    assert client.call("PUT", f"{name}/o", body=BODY).status == 201
    return f"/v1/{ACCOUNT}/{name}/o"


def container_of(path: str) -> str:
    return path.split("/")[3]


def container_acl(client: Client, path: str, allowed: bool) -> None:
    acl = ".r:*" if allowed else ""
    assert client.call("POST", container_of(path), {"X-Container-Read": acl}).status == 204


def container_key(client: Client, path: str, allowed: bool) -> None:
    key = "right" if allowed else "wrong"
    assert client.call("POST", container_of(path), {"X-Container-Meta-Temp-URL-Key": key}).status == 204


def account_key(client: Client, path: str, allowed: bool) -> None:
    key = "right" if allowed else "wrong"
    assert client.call("POST", "", {"X-Account-Meta-Temp-URL-Key": key}).status == 204


def signed(path: str) -> str:
    expires = int(time.time()) + 3600
    signature = hmac.new(b"right", f"GET\n{expires}\n{path}".encode(), hashlib.sha256).hexdigest()
    return f"{path}?temp_url_sig={signature}&temp_url_expires={expires}"


Change = Callable[[Client, str, bool], None]
CHANGES = pytest.mark.parametrize(
    ("change", "shown"),
    [(container_acl, str), (container_key, signed), (account_key, signed)],
    ids=["container-acl", "container-key", "account-key"],
)


def measure(client: Client, path: str, readers: Readers, change: Change) -> dict[bool, list[float]]:
    """How long grants and withdrawals took to count, round by round, while readers ask all the time.

    It is the time from a change to the beginning of the last request that was answered as before: what the machine
    takes to answer one is no part of it.
    """
    took: dict[bool, list[float]] = {True: [], False: []}
    change(client, path, False)
    try:
        readers.until(401)
        for _ in range(ROUNDS):
            for allowed in (True, False):
                change(client, path, allowed)
                changed = time.monotonic()
                readers.until(200 if allowed else 401)
                last_before = readers.latest[401 if allowed else 200]
                took[allowed].append(max(0.0, last_before - changed))
                for _ in range(SAME):
                    assert readers.statuses() == {200 if allowed else 401}, "and goes on so"
    finally:
        readers.close()
    return took


@CHANGES
def test_in_all_workers_at_once(
    client: Client, path: str, here: tuple[str, int], change: Change, shown: Callable[[str], str]
) -> None:
    took = measure(client, path, Readers(here, shown(path), {}), change)
    assert took == {True: [0.0] * ROUNDS, False: [0.0] * ROUNDS}


@CHANGES
def test_in_another_proxy_within_a_second(
    client: Client, path: str, other: tuple[str, int], change: Change, shown: Callable[[str], str]
) -> None:
    took = measure(client, path, Readers(other, shown(path), {}), change)
    print({allowed: [round(one, 2) for one in times] for allowed, times in took.items()})
    for times in took.values():
        assert min(times) <= WITHIN_S
        assert max(times) <= WITHIN_S + SLACK_S


def test_a_workers_death_hides_nothing(client: Client, path: str, here: tuple[str, int], cluster: Cluster) -> None:
    """Its successor shares the same memory, and the others still tell each other."""
    children = Path(f"/proc/{cluster.pids['proxy']}/task/{cluster.pids['proxy']}/children")
    victim = int(children.read_text().split()[0])
    os.kill(victim, 9)
    deadline = time.monotonic() + START_WITHIN_S
    while len(alive := children.read_text().split()) < 2 or str(victim) in alive:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    readers = Readers(here, path, {})
    try:
        for allowed in (True, False) * 3:
            container_acl(client, path, allowed)
            assert readers.statuses() == {200 if allowed else 401}
    finally:
        readers.close()


def test_a_quota_counts_at_once(client: Client, path: str) -> None:
    for size, status in (("1", 413), ("1000000", 201)) * 3:
        assert client.call("POST", container_of(path), {"X-Container-Meta-Quota-Bytes": size}).status == 204
        answers = {client.call("PUT", path.split("/", 3)[3], body=BODY).status for _ in range(CONNECTIONS)}
        assert answers == {status}, json.dumps([size, sorted(answers)])


def test_in_another_proxy_while_many_containers_are_in_use(client: Client, path: str, other: tuple[str, int]) -> None:
    """The other proxy then asks container servers for changes, not for each container."""
    paths = [f"/v1/{ACCOUNT}/{container_of(path)}-{number}/o" for number in range(3 * FEW)]
    for one in paths:
        assert client.call("PUT", container_of(one), {"X-Container-Read": ".r:*"}).status == 201
        assert client.call("PUT", f"{container_of(one)}/o", body=BODY).status == 201
    ended = threading.Event()
    statuses: set[int] = set()

    def read_them() -> None:
        with closing(HTTPConnection(*other, timeout=30)) as connection:
            while not ended.wait(0.1):
                for one in paths:
                    connection.request("GET", one)
                    with connection.getresponse() as answer:
                        answer.read()
                        statuses.add(answer.status)

    readers = [threading.Thread(target=read_them) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        took = measure(client, path, Readers(other, path, {}), container_acl)
        withdrawn = measure(client, paths[0], Readers(other, paths[0], {}), container_acl)
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    print([{allowed: [round(one, 2) for one in times] for allowed, times in all.items()} for all in (took, withdrawn)])
    for times in (*took.values(), *withdrawn.values()):
        assert min(times) <= WITHIN_S
        assert max(times) <= WITHIN_S + SLACK_S
    assert statuses <= {200, 401}, "401 is what the container that is changed answers"
