"""Requests that the native front answers: what was acknowledged is there and listed, or gone, and what is read is
right, whoever is killed in the middle.
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

WRITERS = 8
PAUSE_S = 0.04
"""Between two of a writer: all that were created are read in the end."""
WITHIN_S = 90.0
FRONT = {
    "SWIFTLET_PROXY__FRONT": "true",
    "SWIFTLET_PROXY__FRONT_PUT": "true",
    "SWIFTLET_EXPIRER__INTERVAL_S": "3",
    "SWIFTLET_EXPIRER__DELAY_S": "0",
    # So that object servers open what they send, and little else.
    "SWIFTLET_OBJECT__AUDIT_BYTES_PER_S": "0",
}
EXPIRES_S = 130
"""What goes within 90 s is stored by Python."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = start_cluster(tmp_path_factory.mktemp("front"), "--workers", "1", settings=FRONT)
    yield running
    running.stop()


@pytest.fixture
def cluster(store: Cluster) -> Iterator[Cluster]:
    """The store; what a test has killed is there again for the next one."""
    yield store
    if ended := store.services.keys() - store.pids.keys():
        store.start(*ended)


LONG = 70_000
"""So many times 32 bytes are several pieces of the front's memory."""


def body_of(name: str) -> bytes:
    """Return the object of this name: a few KiB, of some names more than 2 MiB."""
    return hashlib.sha256(name.encode()).digest() * (LONG if name.endswith("13") else 1 + len(name) * 20)


def front_status(cluster: Cluster) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.management_url('proxy')}/statusz", timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())["front"]
    return found


def answered_by_front(cluster: Cluster) -> int:
    return int(front_status(cluster)["answered"])


def taken_from_front(cluster: Cluster) -> int:
    """Rows that all container servers of a container have taken from the front, without Python."""
    return int(front_status(cluster)["rows"]["taken"])


def taken(cluster: Cluster) -> int:
    """How many rows the native code of the container servers that run has taken."""
    count = 0
    for server in cluster.services:
        if server.startswith("container-"):
            with urllib.request.urlopen(f"{cluster.management_url(server)}/statusz", timeout=30) as answer:
                found = json.loads(answer.read())
            count += sum(table["taken"] for table in found["updates"].values())
    return count


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.2)


class Writing:
    """Clients that write until they are told to stop, and remember what was acknowledged."""

    def __init__(self, cluster: Cluster, container: str, headers: Mapping[str, str] | None = None) -> None:
        self._headers = headers
        self._client = Client(cluster.endpoint, cluster.user, cluster.key)
        self._container = container
        self._stop = threading.Event()
        self.created: list[str] = []
        self.others: list[int] = []
        self._pool = ThreadPoolExecutor(max_workers=WRITERS)
        assert self._client.call("PUT", container).status in {201, 202}
        self._cluster, self._answered = cluster, answered_by_front(cluster)
        self._running = [self._pool.submit(self._write, number) for number in range(WRITERS)]

    def _write(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            name = f"{number}-{count}"
            try:
                path = f"{self._container}/{name}"
                status = self._client.call("PUT", path, self._headers, body=body_of(name)).status
            except OSError:
                status = 0
            if status == 201:
                self.created.append(name)
                time.sleep(PAUSE_S)
            else:
                self.others.append(status)
                time.sleep(0.05)

    def is_served(self, least: int) -> bool:
        """Whether more than so many requests have been answered by the front."""
        return answered_by_front(self._cluster) - self._answered > least

    def stop(self) -> None:
        """No more; errors of the writers are raised."""
        self._stop.set()
        for one in self._running:
            one.result()
        self._pool.shutdown()


def check(cluster: Cluster, container: str, created: list[str]) -> None:
    """Each has its bytes, and is listed; at once or by what devices have pending."""
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    for name in created:
        got = client.call("GET", f"{container}/{name}")
        assert (got.status, got.body) == (200, body_of(name)), name

    def missing() -> set[str]:
        rows = client.call("GET", container, query="format=json").json()
        return set(created) - {row["name"] for row in rows}

    until(lambda: not missing(), f"all of {len(created)} listed")


@pytest.fixture(scope="module")
def expiring(store: Cluster) -> tuple[int, list[str]]:
    """When the objects of a container expire, and those that were acknowledged, while servers were killed."""
    goes_at = int(time.time()) + EXPIRES_S
    writing = Writing(store, "expiring", {"X-Delete-At": str(goes_at)})
    until(lambda: writing.is_served(50), "PUTs through the front")
    store.kill("container-2")
    before = len(writing.created)
    until(lambda: len(writing.created) > before + WRITERS, "PUTs while it is away")
    store.start("container-2")
    store.kill("proxy")
    store.start("proxy")
    until(lambda: 0 in writing.others, "somebody noticed")
    writing.stop()
    return goes_at, writing.created


def test_what_expires_is_there_before_its_time(cluster: Cluster, expiring: tuple[int, list[str]]) -> None:
    check(cluster, "expiring", expiring[1])


def test_many_are_answered_by_the_front_and_listed_at_once(cluster: Cluster) -> None:
    writing = Writing(cluster, "many")
    until(lambda: writing.is_served(100), "PUTs through the front")
    writing.stop()
    assert not writing.others
    assert taken_from_front(cluster) > 0
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    rows = {row["name"]: row for row in client.call("GET", "many", query="format=json").json()}
    assert set(writing.created) == set(rows)
    for name in writing.created:
        assert rows[name]["hash"] == hashlib.md5(body_of(name)).hexdigest()
    check(cluster, "many", writing.created)


def test_the_proxy_is_killed(cluster: Cluster) -> None:
    """Between stored and listed, in the middle of bodies, before answers: nothing that was acknowledged is lost."""
    writing = Writing(cluster, "killed")
    until(lambda: writing.is_served(50), "PUTs through the front")
    cluster.kill("proxy")
    cluster.start("proxy")
    until(lambda: 0 in writing.others, "somebody noticed")
    writing.stop()
    check(cluster, "killed", writing.created)


def test_container_servers_are_killed(cluster: Cluster) -> None:
    """PUTs are answered all the same; their rows come from the devices once the servers are back."""
    writing = Writing(cluster, "rows")
    until(lambda: writing.is_served(50), "PUTs through the front")
    servers = [name for name in cluster.services if name.startswith("container-")]
    cluster.kill(*servers)
    before = len(writing.created)
    until(lambda: len(writing.created) > before + WRITERS, "PUTs without container servers")
    cluster.start(*servers)
    writing.stop()
    check(cluster, "rows", writing.created)


def test_rows_that_native_code_has_taken_are_listed_after_a_kill(cluster: Cluster) -> None:
    """Container servers are killed before the rows are in their databases; devices would bring them 10 s later."""
    before = taken(cluster)
    writing = Writing(cluster, "taken")
    until(lambda: taken(cluster) > before + 100, "rows taken natively")
    writing.stop()
    servers = [name for name in cluster.services if name.startswith("container-")]
    cluster.kill(*servers)
    cluster.start(*servers)
    rows = Client(cluster.endpoint, cluster.user, cluster.key).call("GET", "taken", query="format=json").json()
    assert set(writing.created) <= {row["name"] for row in rows}
    check(cluster, "taken", writing.created)


def test_a_container_server_is_killed_again_and_again(cluster: Cluster) -> None:
    """With rows in its table that it has not made durable, or not merged: each PUT succeeds, and each row is listed.
    The front goes on without Python when the server is back.
    """
    writing = Writing(cluster, "again")
    for turn in range(3):
        before = taken_from_front(cluster)
        until(lambda before=before: taken_from_front(cluster) > before + 50, "rows taken by all")  # type: ignore[misc]
        cluster.kill(f"container-{turn + 1}")
        created = len(writing.created)
        until(lambda created=created: len(writing.created) > created + 20, "PUTs without it")  # type: ignore[misc]
        cluster.start(f"container-{turn + 1}")
    before = taken_from_front(cluster)
    until(lambda: taken_from_front(cluster) > before + 50, "rows taken by all again")
    writing.stop()
    assert not writing.others
    check(cluster, "again", writing.created)


def test_an_object_server_is_killed(cluster: Cluster) -> None:
    writing = Writing(cluster, "devices")
    until(lambda: writing.is_served(50), "PUTs through the front")
    cluster.kill("object-1")
    before = len(writing.created)
    until(lambda: len(writing.created) > before + 50, "PUTs without one server")
    writing.stop()
    check(cluster, "devices", writing.created)


OBJECTS = 400
"""So many are created before they are deleted."""


class Deleting:
    """Clients that delete all objects of a container, each once."""

    def __init__(self, cluster: Cluster, container: str) -> None:
        self._client = Client(cluster.endpoint, cluster.user, cluster.key)
        self._container = container
        self.statuses: dict[str, int] = {}
        assert self._client.call("PUT", container).status in {201, 202}
        self._pool = ThreadPoolExecutor(max_workers=WRITERS)
        names = [f"o-{number}" for number in range(OBJECTS)]
        created = list(self._pool.map(lambda name: self._client.call("PUT", f"{container}/{name}", body=b"x"), names))
        assert {answer.status for answer in created} == {201}
        self._cluster, self._answered = cluster, answered_by_front(cluster)
        self._running = [self._pool.submit(self._delete, name) for name in names]

    def _delete(self, name: str) -> None:
        try:
            self.statuses[name] = self._client.call("DELETE", f"{self._container}/{name}").status
        except OSError:
            self.statuses[name] = 0
        time.sleep(PAUSE_S)

    def is_served(self, least: int) -> bool:
        """Whether more than so many requests have been answered by the front."""
        return answered_by_front(self._cluster) - self._answered > least

    def finish(self) -> None:
        """All have been deleted, or an attempt was made; what was acknowledged is gone."""
        for one in self._running:
            one.result()
        self._pool.shutdown()
        gone = {name for name, status in self.statuses.items() if status == 204}
        for name in gone:
            assert self._client.call("GET", f"{self._container}/{name}").status == 404, name

        def listed() -> set[str]:
            rows = self._client.call("GET", self._container, query="format=json").json()
            return gone & {row["name"] for row in rows}

        until(lambda: not listed(), f"none of {len(gone)} listed")


def test_deletions_while_the_proxy_is_killed(cluster: Cluster) -> None:
    deleting = Deleting(cluster, "gone-proxy")
    until(lambda: deleting.is_served(50), "DELETEs through the front")
    cluster.kill("proxy")
    cluster.start("proxy")
    deleting.finish()
    assert set(deleting.statuses.values()) <= {204, 0}


def test_deletions_while_an_object_server_is_killed(cluster: Cluster) -> None:
    """Devices have deleted an object before another one turns out to be gone: nobody is told that it was missing."""
    deleting = Deleting(cluster, "gone-device")
    until(lambda: deleting.is_served(50), "DELETEs through the front")
    cluster.kill("object-1")
    deleting.finish()
    assert set(deleting.statuses.values()) <= {204, 503}
    assert list(deleting.statuses.values()).count(204) > OBJECTS // 2


READ_BYTES = (64 << 20) + 4097
"""Of an object: far more than devices, processes and sockets have of it ahead of a client."""
READ_PARTS = [part << 20 for part in (4, 20, 36, 52)]
"""What the client has each time when the server that sends is killed."""
SEGMENTS, SEGMENT_BYTES = 64, (3 << 19) + 7
"""Segments of a large object, and bytes of each."""
SERVERS = range(1, 5)
"""The numbers of the object servers."""
TAKEN_BYTES = 5 << 20
"""What a client of a large object takes before, and after, a server is killed."""


class Reading:
    """A client that takes an object as it is told, and has little room for what it has not taken. Its GET has no header
    of a body, with which Python would answer.
    """

    def __init__(self, client: Client, path: str) -> None:
        """Ask for it, and wait for the head of the answer."""
        parts = urlsplit(client.endpoint)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._socket.settimeout(WITHIN_S)
        self._socket.connect((parts.hostname, parts.port))
        lines = f"GET {client.base}/{path} HTTP/1.1", "Host: test", f"X-Auth-Token: {client.token}", "", ""
        self._socket.sendall("\r\n".join(lines).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._socket.recv(1)
        self.status = int(head.split()[1])
        self.body = bytearray()

    def take(self, size: int) -> None:
        """Have so many bytes of it."""
        while len(self.body) < size:
            data = self._socket.recv(1 << 20)
            assert data, f"the answer ended after {len(self.body)} bytes"
            self.body += data

    def close(self) -> None:
        self._socket.close()


def senders(cluster: Cluster) -> list[str]:
    """The object servers that have a file of the object's size open: whoever sends it does until the end."""
    servers = {name: pid for name, pid in cluster.pids.items() if name.startswith("object-")}
    return [name for name, pid in servers.items() if any(size == READ_BYTES for size in open_sizes(pid))]


def open_sizes(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            yield file.stat().st_size


def kill_sender(cluster: Cluster) -> str:
    """Kill the object server that sends the object, as soon as it is the only one; its name."""
    deadline = time.monotonic() + WITHIN_S
    while len(found := senders(cluster)) != 1:
        assert time.monotonic() < deadline, f"these send: {found}"
        time.sleep(0.05)
    cluster.kill(found[0])
    return found[0]


def noted(cluster: Cluster, client: Client) -> int:
    """The requests that the front has answered: it counts one before it takes another connection."""
    client.plain("GET", "/healthcheck")
    return answered_by_front(cluster)


def test_object_servers_are_killed_in_the_middle_of_a_long_get(cluster: Cluster) -> None:
    """The one that sends, then the one that goes on in its place: the last one with the object has the rest, and the
    client gets every byte.
    """
    client, body = Client(cluster.endpoint, cluster.user, cluster.key), random.Random(7).randbytes(READ_BYTES)
    assert client.call("PUT", "read").status == 201
    for name, data in (("short", b"x"), ("long", body)):
        assert client.call("PUT", f"read/{name}", body=data).status == 201

    def heated() -> int:
        """Read another object until the front answers, as it does for a while then; what it has noted."""
        before, deadline = noted(cluster, client), time.monotonic() + WITHIN_S
        while True:
            for _ in range(10):
                with closing(Reading(client, "read/short")) as reading:
                    reading.take(1)
            if (after := noted(cluster, client)) > before:
                return after
            assert time.monotonic() < deadline

    def was_front() -> bool:
        """Read the object while servers are killed, and started again; whether the front has answered."""
        cluster.wait_until_proved()
        answered = heated()
        with closing(Reading(client, "read/long")) as reading:
            assert reading.status == 200
            killed: list[str] = []
            for part in READ_PARTS:
                reading.take(part)
                if len(killed) == 2:  # Nobody but the third one can have sent this.
                    cluster.start(*killed)
                killed.append(kill_sender(cluster))
            reading.take(READ_BYTES)
        assert reading.body == body
        assert len(set(killed[:3])) == 3
        by_front = noted(cluster, client) == answered + 1
        cluster.start(*killed[2:])
        return by_front

    until(was_front, "a long GET through the front")


def test_object_servers_are_killed_one_after_another_while_a_large_object_is_read(cluster: Cluster) -> None:
    """Whoever is away at the moment: the client gets every byte of all segments. Python answers, and asks for them
    ahead.
    """
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    body = random.Random(8).randbytes(SEGMENTS * SEGMENT_BYTES)
    assert client.call("PUT", "segments").status == 201
    entries = []
    for number in range(SEGMENTS):
        data = body[number * SEGMENT_BYTES : (number + 1) * SEGMENT_BYTES]
        assert client.call("PUT", f"segments/{number:02}", body=data).status == 201
        entries.append({"path": f"segments/{number:02}", "size_bytes": len(data)})
    manifest = json.dumps(entries).encode()
    assert client.call("PUT", "segments/all", body=manifest, query="multipart-manifest=put").status == 201
    cluster.wait_until_proved()
    with closing(Reading(client, "segments/all")) as reading:
        assert reading.status == 200
        for number in (*SERVERS, *SERVERS):
            reading.take(len(reading.body) + TAKEN_BYTES)
            cluster.kill(f"object-{number}")
            reading.take(len(reading.body) + TAKEN_BYTES)
            cluster.start(f"object-{number}")
        assert len(reading.body) < len(body), "it was read before all were killed"
        reading.take(len(body))
    assert reading.body == body


def test_what_expires_goes_whoever_was_killed_while_it_was_stored(
    cluster: Cluster, expiring: tuple[int, list[str]]
) -> None:
    """Whatever was acknowledged has its task. This comes last, as the time passes during the other tests."""
    goes_at, created = expiring
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    time.sleep(max(0.0, goes_at - time.time()) + 0.1)
    assert client.call("GET", f"expiring/{created[0]}").status == 404
    until(lambda: not client.call("GET", "expiring", query="format=json").json(), "all rows are gone")
