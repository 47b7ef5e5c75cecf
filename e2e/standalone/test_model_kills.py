"""Objects, listings and totals agree after random operations of several clients while servers are killed.

Fault model: SIGKILL of one object server, container server or replicator at a time, in the long form also of workers of
the proxy, at random moments, started again within seconds. While that goes on no read may show anything that the
acknowledged operations do not allow; after what is pending was delivered and two rounds everything has to agree, on
every replica, and the listing audit finds nothing.

`SEED` chooses what is done and killed, `OPS` how many writes there are (`make model-kills`): after each `EPISODE`
everything is checked, and the next one goes on from there.
"""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.model_checks import Checks, settle, wait_until
from e2e.standalone.model_clients import Model, Worker, make_containers, new_model
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Client

SEED = int(os.environ.get("SEED", "1"))
OPS = int(os.environ.get("OPS", "250"))
"""The number of writes that the test makes at least."""
EPISODE = 1000
"""Writes between two checks, at least."""
KILLS = 3 if OPS < EPISODE else 8
"""In each episode, at least."""
AWAY_S = (0.0, 0.3, 1.5) if OPS < EPISODE else (0.0, 0.3, 1.5, 6.0)
CLIENTS = 6
PAUSE_S = 0.05 if OPS < EPISODE else 0.0
"""Between two requests of a client: in the short form what matters is when servers die, not how busy the machine is."""
EPISODE_S = 300.0
WORKER = "a worker of the proxy"
SERVERS = [*(f"object-{n}" for n in range(1, 5)), *(f"container-{n}" for n in range(1, 4))]
VICTIMS = [*SERVERS, *SERVERS, "replicator", "database-replicator", *([] if OPS < EPISODE else [WORKER, WORKER])]


def disturbed(cluster: Cluster, client: Client, model: Model, chooser: random.Random, writes: int) -> list[str]:
    """So many writes at least, while servers are killed one at a time; which they were."""
    workers = [Worker(client, model, random.Random(chooser.random())) for _ in range(CLIENTS)]

    wanted, deadline = model.written + writes, time.monotonic() + EPISODE_S
    killed: list[str] = []
    with at_work([worker.step for worker in workers], PAUSE_S) as over:
        while (model.written < wanted or len(killed) < KILLS) and time.monotonic() < deadline:
            if over.wait(chooser.uniform(0.0, 1.0)):
                break
            killed.append(chooser.choice(VICTIMS))
            if killed[-1] == WORKER:
                kill_worker(cluster, chooser)
            else:
                cluster.kill(killed[-1])
                over.wait(chooser.choice(AWAY_S))
                cluster.start(killed[-1])
    for worker in workers:
        worker.close()
    assert model.written >= wanted, f"{model.written} of {wanted} writes in {EPISODE_S:g} s: {dict(model.counts)}"
    return killed


def kill_worker(cluster: Cluster, chooser: random.Random) -> None:
    """One of them: the proxy starts another one in its place."""
    proxy = psutil.Process(cluster.pids["proxy"])
    before = proxy.children()
    chooser.choice(before).kill()
    wait_until(lambda: len(after := proxy.children()) == len(before) and after != before, "another worker of the proxy")


def empty(client: Client, model: Model) -> None:
    """Every object can be deleted, and then every container: nothing is listed that is not there."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        statuses = set(pool.map(lambda path: client.call("DELETE", path).status, model.histories))
    assert statuses <= {204, 404}
    for container in model.containers:
        answer = client.call("DELETE", container)
        assert answer.status == 204, f"{container}: {answer.text} {client.call('GET', container).text}"


@pytest.mark.timeout(300 + OPS)
def test_objects_listings_and_totals_agree_after_kills(tmp_path: Path) -> None:
    print(f"SEED={SEED} OPS={OPS}")
    chooser, model, begun = random.Random(SEED), new_model(), time.monotonic()
    cluster = start_cluster(tmp_path / "store")
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        make_containers(client, model)
        checks = Checks(cluster, client, model)
        while model.written < OPS:
            killed = disturbed(cluster, client, model, chooser, min(EPISODE, OPS - model.written))
            ended = time.monotonic()
            assert model.wrong == [], f"{len(model.wrong)} answers are wrong: {model.wrong[:5]}"
            did = settle(cluster)
            checks.run()
            print(
                f"{time.monotonic() - begun:.0f} s: {model.written} writes, {model.unanswered} without an answer, "
                f"killed {', '.join(killed)}, rounds brought {[(one['pushed'], one['pulled']) for one in did]}, "
                f"settled and checked in {time.monotonic() - ended:.1f} s"
            )
        print(dict(sorted(model.counts.items())))
        empty(client, model)
    except BaseException as error:
        error.add_note(f"SEED={SEED} OPS={OPS}")
        raise
    finally:
        cluster.stop()
