"""The cluster's key is changed under a store that is in use: every service follows its file, no request is refused."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from swiftclient.client import Connection
from swiftclient.exceptions import ClientException

from e2e.standalone.cluster import Cluster
from swiftlet.settings.secret import key_id

WITHIN_S = 60.0
PAUSE_S = 0.2
"""Between two rounds of the user."""
SETTLE_S = 3.0
"""More than the interval at which a process looks at the file: the other workers have it too."""


class User(threading.Thread):
    """Writes and reads until it is told to end; what failed."""

    def __init__(self, connection: Connection, container: str) -> None:
        super().__init__()
        self._connection, self._container = connection, container
        self.ended = threading.Event()
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._pauses = threading.Event()
        self.rounds = 0
        self.problems: list[str] = []

    def run(self) -> None:
        while not self.ended.wait(PAUSE_S):
            if not self._may_go_on.is_set():
                self._pauses.set()
                self._may_go_on.wait()
                self._pauses.clear()
            # Text, not bytes: it can be sent again, with a new token when one is refused, without any `retries`.
            body = os.urandom(500).hex()
            try:
                name = f"o{self.rounds % 20}"
                self._connection.put_object(self._container, name, body)
                assert self._connection.get_object(self._container, name)[1] == body.encode()
                self._connection.get_container(self._container)
            except (ClientException, AssertionError) as error:
                self.problems.append(str(error))
            self.rounds += 1

    def pause(self) -> None:
        """Ask for nothing until `resume`; returns when nothing is under way."""
        self._may_go_on.clear()
        assert self._pauses.wait(WITHIN_S)

    def resume(self) -> None:
        """Go on, if it paused."""
        self._may_go_on.set()

    def makes_progress(self) -> None:
        """Wait until it has done some more."""
        before = self.rounds
        eventually(lambda: self.rounds > before + 2)


def keys_of(cluster: Cluster, service: str) -> list[str]:
    with urllib.request.urlopen(f"{cluster.management_url(service)}/statusz", timeout=5) as answer:
        found: list[str] = json.load(answer)["keys"]
        return found


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.1)


def hand_out(cluster: Cluster, *keys: bytes) -> None:
    """Put keys into the file as Kubernetes does, and wait until every process has them."""
    path = cluster.data / "etc" / "cluster.key"
    aside = Path(f"{path}.new")
    aside.write_bytes(b"\n".join(keys))
    os.replace(aside, path)
    wanted = [key_id(key) for key in keys]
    eventually(lambda: all(keys_of(cluster, service) == wanted for service in cluster.services))
    time.sleep(SETTLE_S)


@pytest.fixture
def same_key(own_cluster: Cluster) -> Iterator[None]:
    """After the test the cluster has the key that it had."""
    path = own_cluster.data / "etc" / "cluster.key"
    before = path.read_bytes().strip()
    yield
    hand_out(own_cluster, before)


@pytest.fixture
def user(same_key: None, own_cluster: Cluster) -> Iterator[User]:
    connection = Connection(authurl=own_cluster.auth_url, user=own_cluster.user, key=own_cluster.key, retries=0)
    connection.put_container("keys")
    running = User(connection, "keys")
    running.start()
    yield running
    running.ended.set()
    running.join()
    connection.close()


@pytest.mark.slow
def test_a_key_is_changed_under_load(own_cluster: Cluster, user: User) -> None:
    old = (own_cluster.data / "etc" / "cluster.key").read_bytes().strip()
    new = os.urandom(16).hex().encode()
    assert keys_of(own_cluster, "object-1") == [key_id(old)]

    hand_out(own_cluster, old, new)
    hand_out(own_cluster, new, old)
    assert user.is_alive()
    assert user.problems == []

    # The token of the user is of the old key, which goes now: it is refused, and a new one is as good.
    rounds = user.rounds
    hand_out(own_cluster, new)
    eventually(lambda: user.rounds > rounds + 8)
    refused = [problem for problem in user.problems if "401" not in problem]
    assert refused == []
    again = Connection(authurl=own_cluster.auth_url, user=own_cluster.user, key=own_cluster.key, retries=0)
    assert len(again.get_container("keys")[1]) > 0
    again.close()

    # A damaged file changes nothing, anywhere.
    (own_cluster.data / "etc" / "cluster.key").write_bytes(b"short\n")
    eventually(
        lambda: all("the cluster keys can't be used" in own_cluster.log(service) for service in own_cluster.services)
    )
    assert {tuple(keys_of(own_cluster, service)) for service in own_cluster.services} == {(key_id(new),)}
