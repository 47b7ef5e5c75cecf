"""Containers move to erasure coding and out of it while clients use them, by movers that are killed, and so are all the
others: each process of the store, one at a time.

Fault model: SIGKILL of the mover at random moments, again and again, in each direction at the same time; SIGKILL of one
object server, container server, replicator, metadata server, proxy or worker of a proxy at a time, in whichever phase
and at whichever step the movers are, started again within seconds; clients that PUT, POST, COPY, DELETE and read
meanwhile, through proxies that know a phase late, and go away in the middle. While that goes on no read may show
anything that the acknowledged operations do not allow. Afterwards everything is in the new policy and nothing in the
old one, the bytes are those of the ETags, and listings and totals say what objects there are.

`SEED` chooses what is done and what is killed when, `KILLS` how often a mover is killed in each direction, and half of
how often others are (`make move-kills`). A move is settled a day after it began, which no test waits for: this one
settles it by hand, once nobody writes. `make check` leaves this to `e2e.standalone.test_kill_matrix`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.standalone import movers as moves
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.model_checks import Checks, settle, wait_until
from e2e.standalone.model_clients import Model, Worker
from e2e.standalone.model_history import History
from e2e.standalone.movers import Movers, put_still
from e2e.standalone.test_model_kills import WORKER, kill_worker
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Client
from swiftlet.policy_moves import Phase

SEED = int(os.environ.get("SEED", "1"))
KILLS = int(os.environ.get("KILLS", "2"))
"""How often the mover of each container is killed."""
NAMES = 16 + KILLS
CLIENTS = 3
PAUSE_S = 0.05 if KILLS < 10 else 0.0
"""Between two requests of a client: with few kills what matters is when movers die, not how busy the machine is."""
USUAL, CODED = "usual", "cold"
WAYS = {"m0": (USUAL, CODED), "m1": (CODED, USUAL)}
"""The containers of the model, with the policies from and to which they move."""
VERSIONED, VERSIONS = "old", 4
ALIVE_S = (0.2, 6.0)
"""For how long a mover that is killed lives: the first one at all, the others once they may copy."""
STILL = 10 + 4 * KILLS
"""Objects of each container that nobody writes again."""
RATE = 20_000
"""Bytes per second of movers that are killed, so that they are killed while they copy."""
WITHIN_S = 1800.0
"""For a mover that is not killed, on a machine with much else to do."""
SERVERS = [*(f"object-{n}" for n in range(1, 8)), *(f"container-{n}" for n in range(1, 4))]
VICTIMS = [*SERVERS, "proxy", "proxy", WORKER, WORKER, "replicator", "database-replicator", "metadata"]
"""Processes other than movers, as often as they are chosen."""
AWAY_S = (0.0, 0.3, 1.5)
SETTINGS = {
    # With many kills all is as by default, and each phase takes more than a minute.
    **(moves.BRIEFLY if KILLS < 10 else {}),
    **moves.SETTINGS,
    # What a killed mover leaves undecided is decided as soon as it may be.
    "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
    "SWIFTLET_REPLICATOR__CODED_RECOVERY_AFTER_S": "10",
}


def kill_and_finish(movers: Movers, container: str, source: str, target: str, chooser: random.Random) -> int:
    """Move a container by movers that are killed, then by some that are not; how many were killed in time."""
    killed = 0
    for number in range(KILLS):
        process = movers.begin(source, target, *movers.of(container), "--rate", str(RATE))
        if number:
            _wait_for_pass(process)
        try:
            process.communicate(timeout=chooser.uniform(*ALIVE_S))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
    movers.finish(container, source, target)
    return killed


def kill_others(cluster: Cluster, chooser: random.Random, runs: Sequence[Future[Any]]) -> Counter[str]:
    """Kill one process of the store after the other while movers are at work; return how many of each kind were."""
    killed: Counter[str] = Counter()
    while killed.total() < 2 * KILLS and not all(run.done() for run in runs):
        time.sleep(chooser.uniform(0.0, 2.0))
        victim = chooser.choice(VICTIMS)
        killed[victim.rstrip("-0123456789")] += 1
        if victim == WORKER:
            kill_worker(cluster, chooser)
            continue
        cluster.kill(victim)
        time.sleep(chooser.choice(AWAY_S))
        cluster.start(victim)
    return killed


def _wait_for_pass(process: subprocess.Popen[str]) -> None:
    """Return when a mover may copy objects, by what it says, or has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        said = json.loads(line)
        if said.get("phase") == Phase.MOVING.value:
            time.sleep(max(0.0, said["nextAt"] - time.time()))
            return


@contextmanager
def used(client: Client, model: Model, chooser: random.Random) -> Iterator[None]:
    """Clients work on the containers within the block."""
    workers = [Worker(client, model, random.Random(chooser.random())) for _ in range(CLIENTS)]
    with at_work([worker.step for worker in workers], PAUSE_S):
        yield
    for worker in workers:
        worker.close()


def put_versions(client: Client) -> None:
    """A container with old versions."""
    headers = {"X-Storage-Policy": USUAL, "X-Versions-Enabled": "true"}
    assert client.insist("PUT", VERSIONED, headers).status in {201, 202}
    for number in range(VERSIONS):
        assert client.insist("PUT", f"{VERSIONED}/o", body=f"version {number}".encode() * 1000).status == 201


def version_ids(client: Client) -> list[str]:
    """The ids of all versions, the oldest first."""
    listed = client.insist("GET", VERSIONED, query="versions&format=json").json()
    return [one["version_id"] for one in reversed(listed)]


def versions_of(client: Client) -> list[bytes]:
    """The bodies of all versions, the oldest first; one that was written again and again counts once."""
    bodies = [client.insist("GET", f"{VERSIONED}/o", query=f"version-id={id}").body for id in version_ids(client)]
    return [body for body, _ in itertools.groupby(bodies)]


def totals_are_told(client: Client) -> None:
    """The account tells what its containers have by policy."""
    listed = [one["name"] for one in client.insist("GET", query="format=json").json()]
    wanted: dict[str, int] = {}
    for policy in (USUAL, CODED):
        heads = [client.insist("HEAD", name).headers for name in listed]
        there = [head for head in heads if head["X-Storage-Policy"] == policy]
        wanted[f"X-Account-Storage-Policy-{policy}-Object-Count".lower()] = sum(
            int(head["X-Container-Object-Count"]) for head in there
        )

    # The hidden container is not listed.
    wanted[f"X-Account-Storage-Policy-{CODED}-Object-Count".lower()] += len(version_ids(client))
    told: list[dict[str, int]] = []

    def is_right() -> bool:
        headers = {name.lower(): value for name, value in client.insist("HEAD").headers.items()}
        told.append({name: int(headers.get(name, 0)) for name in wanted})
        return told[-1] == wanted

    try:
        wait_until(is_right, "the account's totals")
    except AssertionError as error:
        raise AssertionError(f"the account tells {told[-1]}, its containers are {wanted}") from error


def look(checks: Checks) -> None:
    """Objects are as the model allows, and listings as the objects."""
    checks._listings(checks._objects())


@pytest.mark.deep
@pytest.mark.timeout(3600 + 60 * KILLS)
def test_containers_move_both_ways_while_clients_use_them_and_processes_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"SEED={SEED} KILLS={KILLS}")
    chooser, begun = random.Random(SEED), time.monotonic()
    model = Model({f"{name}/o{number}": History() for number in range(NAMES) for name in WAYS})
    cluster = start_cluster(tmp_path / "store", "--policies", f"{USUAL},{CODED}=4+2", settings=SETTINGS)
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        for name, (source, _) in WAYS.items():
            assert client.insist("PUT", name, {"X-Storage-Policy": source}).status in {201, 202}
        put_versions(client)
        still = {path: history for name in WAYS for path, history in put_still(client, name, STILL).items()}
        movers = Movers(cluster, client.account, WITHIN_S)
        everything = {**WAYS, VERSIONED: (USUAL, CODED)}
        with ThreadPoolExecutor(len(everything)) as pool:
            with used(client, model, chooser):
                versions = pool.submit(movers.finish, VERSIONED, *everything[VERSIONED])
                runs = {
                    name: pool.submit(kill_and_finish, movers, name, *way, random.Random(chooser.random()))
                    for name, way in WAYS.items()
                }
                others = kill_others(cluster, chooser, [versions, *runs.values()])
                killed = {name: run.result() for name, run in runs.items()}
                assert versions.result()
            # Nobody writes any more: what was written during the last passes is moved, and what devices that were away
            # have yet to tell of.
            settle(cluster)
            assert all(pool.map(lambda name: movers.finish(name, *WAYS[name]), WAYS))
        told = f"killed {killed} and {dict(others)}, {dict(sorted(model.counts.items()))}"
        print(f"{time.monotonic() - begun:.0f} s: {told}")
        assert model.wrong == [], f"{len(model.wrong)} answers are wrong: {model.wrong[:5]}"
        assert model.written > 50
        model.histories |= still
        code, said = movers.run(USUAL, CODED, "--leave-moving")
        problems = {one["container"] for one in said if "problem" in one}
        assert (code, problems) == (1, {"m1"}), "one that moves the other way can't be moved yet"
        moved = {(one["container"], one["versions"]) for one in said if one.get("phase") == "moving"}
        assert moved == {("m0", False), (VERSIONED, False), (VERSIONED, True)}
        _, said = movers.run(USUAL, CODED, "--status")
        shown = {one["container"]: one for one in said if "left" in one}
        assert (shown["m0"]["phase"], shown["m0"]["left"]) == ("moving", 0)
        assert shown["m0"]["settlesAt"] > time.time() + 80_000
        settle(cluster)
        checks = Checks(cluster, client, model)
        look(checks)
        print(f"{time.monotonic() - begun:.0f} s: moved and looked at")
        for variable, value in cluster.settings.items():
            monkeypatch.setenv(variable, value)
        movers.must_have_moved(everything.items(), list(model.histories))
        for name, way in everything.items():
            assert client.insist("HEAD", name).headers["X-Storage-Policy"] == way[1]
        totals_are_told(client)
        look(checks)
        assert versions_of(client) == [f"version {number}".encode() * 1000 for number in range(VERSIONS)]
        print(f"{time.monotonic() - begun:.0f} s in all")
    except BaseException as error:
        error.add_note(f"SEED={SEED} KILLS={KILLS}")
        raise
    finally:
        cluster.stop()
