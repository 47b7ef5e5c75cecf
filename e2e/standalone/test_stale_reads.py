"""Whoever was told that a write is done sees it, or something newer, while object servers come and go under load."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable

import pytest

from e2e.standalone.cluster import Cluster
from e2e.standalone.stale_reads import Load
from e2e.standalone.wire import Client

CONTAINER = "stale"
READS = int(os.environ.get("READS", "300"))
"""At least so many reads."""
LONGEST_S = 200.0 if READS < 1000 else 3000.0
AWAY_S = 1.5
PAUSE_S = 0.1 if READS < 1000 else 0.05
"""Between two requests of a client."""


def until(condition: Callable[[], bool], within_s: float) -> float:
    """Wait for it; the seconds it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + within_s
        time.sleep(0.1)
    return time.monotonic() - begun


def killed(cluster: Cluster, server: str) -> None:
    """It ends at once, and is started again."""
    cluster.kill(server)
    time.sleep(AWAY_S)
    cluster.start(server)
    time.sleep(2 * AWAY_S)


def stopped(cluster: Cluster, server: str) -> None:
    """It stands still for longer than its peers wait, and goes on without knowing."""
    os.kill(cluster.pids[server], signal.SIGSTOP)
    time.sleep(2 * AWAY_S)
    os.kill(cluster.pids[server], signal.SIGCONT)
    time.sleep(2 * AWAY_S)


@pytest.mark.timeout(300 + LONGEST_S)
@pytest.mark.parametrize(("away", "times"), [(killed, 3), (stopped, 2)])
def test_nothing_acknowledged_is_missed_while_one_server_at_a_time_is_away(
    own_cluster: Cluster, away: Callable[[Cluster, str], None], times: int
) -> None:
    client, container = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key), f"{CONTAINER}-{away.__name__}"
    assert client.call("PUT", container).status == 201
    servers = itertools.cycle(sorted(name for name in own_cluster.services if name.startswith("object-")))
    load = Load(client, container, PAUSE_S)
    took_s = load.run(lambda: away(own_cluster, next(servers)), times, READS, LONGEST_S)
    print(f"{load.reads} reads in {took_s:.0f} s, {len(load.wrong)} wrong: {dict(load.counts)}")
    print(*load.wrong[:20], sep="\n")
    assert load.wrong == []
    assert load.reads >= READS


def test_a_server_that_was_started_is_proved_within_seconds(own_cluster: Cluster) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    assert client.call("PUT", CONTAINER).status == 201
    own_cluster.kill("object-1")
    for number in range(20):
        assert client.call("PUT", f"{CONTAINER}/{number}", body=b"x").status == 201
    own_cluster.start("object-1")
    assert own_cluster.unproved("object-1") == ["device"]
    took_s = until(lambda: own_cluster.unproved("object-1") == [None], 90)
    print(f"proved after {took_s:.1f} s")
