"""Kills the processes of a store with erasure coding, wipes its devices, and tells when all is whole again by proof.

Fault model: SIGKILL of the proxy, of workers of it, of the replicator and of up to two object servers at a time, at
random moments; devices that come back empty, one at a time, and the next one only after the replicators have proved
that all is whole again. With q prepared fragments of a write, q-k devices may be lost before all places have it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from e2e.standalone.cluster import Cluster, environment
from e2e.standalone.coded_model import SIZES
from e2e.standalone.packed_model import PackedModel, PackedWorker, Small
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Client
from swiftlet.main.commands.standalone.plan import Layout

SEED = int(os.environ.get("SEED", "1"))
KILLS = int(os.environ.get("KILLS", "4"))
"""Processes that are killed, at least."""
CLIENTS = 4
RING = "object-1"
"""The ring of the policy with erasure coding."""
POLICY = "coded"
CONTAINER = "kills"
SERVERS = [f"object-{number}" for number in range(1, 8)]
AWAY_S = (0.0, 0.2, 1.0)
WIPE_EVERY = 10
"""Kills after which the next device is wiped."""
YOUNG_S = 10.5
"""Records younger than this may be left out of a proof."""
WHOLE_WITHIN_S = 1200.0
"""On a machine with much else to do; it takes seconds on another one."""
LARGE_BYTES = 1 << 20
"""Fragments above this have files of their own."""
SETTINGS = {
    # Rounds follow each other, and a write without its proxy is decided as soon as it may be.
    "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
    "SWIFTLET_REPLICATOR__CODED_RECOVERY_AFTER_S": "10",
    "SWIFTLET_REPLICATOR__PROBE_INTERVAL_S": "0.5",
}


def report_of(cluster: Cluster) -> dict[str, Any]:
    """The replicator's status report."""
    with urllib.request.urlopen(cluster.url("replicator") + "/statusz", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def is_proved(cluster: Cluster, since_s: float, rings: Sequence[str] = (RING,)) -> bool:
    """Whether all devices have proved by a round that has begun since then that nothing is lacking in these rings."""
    try:
        return proves(report_of(cluster), since_s, rings)
    except OSError:
        return False


def proves(report: Mapping[str, Any], since_s: float, rings: Sequence[str]) -> bool:
    """Whether a replicator's report says so."""
    found = [device["rings"].get(ring) for device in report["devices"].values() for ring in rings]
    return len(found) == len(SERVERS) * len(rings) and all(ring and (ring["syncedAt"] or 0) > since_s for ring in found)


def wait_until_whole(cluster: Cluster, since_s: float, rings: Sequence[str] = (RING,)) -> None:
    """Wait for that proof, and until nothing is undecided or left to repair."""

    def is_whole() -> bool:
        repairs = report_of(cluster)["repairs"] or {"undecided": 1}
        return is_proved(cluster, since_s, rings) and not (repairs["undecided"] or repairs["left"])

    wait_until(is_whole, cluster)


def wait_until(condition: Callable[[], bool], cluster: Cluster) -> None:
    """Wait for something, and tell what replicators report if it does not come."""
    deadline = time.monotonic() + WHOLE_WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, json.dumps(report_of(cluster), indent=1)
        time.sleep(0.2)


class Killer:
    """Kills processes of a store, and wipes devices."""

    rings: Sequence[str] = (RING,)
    """All of these are proved to be whole before another device is wiped."""

    def __init__(self, cluster: Cluster, chooser: random.Random, over: threading.Event) -> None:
        """`over` ends its pauses."""
        self._cluster = cluster
        self._chooser = chooser
        self._over = over
        self._wiped_s: float | None = None
        self._last_wipe = -WIPE_EVERY
        self.killed: Counter[str] = Counter()

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(self.killed.values()) - self.killed["wiped"]

    def step(self) -> None:
        """Kill some processes at once, and start them again."""
        victims = self._chooser.choice(self._ways())()
        if not victims:
            return
        is_wiped = victims[0] in SERVERS and self.kills - self._last_wipe >= WIPE_EVERY
        if is_wiped and self._wiped_s is not None:
            # Under load: nobody but those who write disturbs it.
            wait_until(self._is_whole, self._cluster)
        self._end(victims, is_wiped)

    def _end(self, victims: Sequence[str], is_wiped: bool) -> None:
        """Kill processes at once, perhaps wipe the device of the first one, and start them again."""
        for victim in victims:
            self._note(victim.partition("-")[0])
        self._cluster.kill(*victims)
        if is_wiped:
            self._wipe(victims[0])
        self._over.wait(self._chooser.choice(AWAY_S))
        self._cluster.start(*victims)
        if is_wiped:
            self._wiped_s = time.time()

    def _ways(self) -> Sequence[Callable[[], list[str]]]:
        """What may be killed, as often as it is chosen: each returns the processes to be started again."""
        return self._servers, self._servers, self._proxy, self._replicator, self._mixed

    def _note(self, kind: str) -> None:
        """A process of this kind is killed now."""
        self.killed[kind] += 1

    def _is_whole(self) -> bool:
        """Whether the device that was wiped last has all that it lacked, by proof."""
        return is_proved(self._cluster, (self._wiped_s or 0.0) + YOUNG_S, self.rings)

    def _servers(self) -> list[str]:
        return self._chooser.sample(SERVERS, self._chooser.choice((1, 1, 2)))

    def _mixed(self) -> list[str]:
        return [self._chooser.choice(SERVERS), self._chooser.choice(("proxy", "replicator"))]

    def _replicator(self) -> list[str]:
        return ["replicator"]

    def _proxy(self) -> list[str]:
        if self._chooser.random() < 0.3:
            return ["proxy"]
        self._kill_worker()
        return []

    def _kill_worker(self) -> None:
        """Kill a worker of the proxy, which starts another one."""
        workers = psutil.Process(self._cluster.pids["proxy"]).children()
        if workers:
            self._note("worker")
            self._chooser.choice(workers).kill()

    def _wipe(self, server: str) -> None:
        """Take away all that a server that was killed has on its device."""
        for kept in (Layout(self._cluster.data).devices / f"d{server.partition('-')[2]}").iterdir():
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        self._last_wipe = self.kills
        self.killed["wiped"] += 1


def disturb(cluster: Cluster, client: Client, model: PackedModel, chooser: random.Random) -> Counter[str]:
    """Load the store while processes are killed; return how many of each were."""
    own = [model.names[number::CLIENTS] for number in range(CLIENTS)]
    workers = [PackedWorker(client, CONTAINER, model, names, random.Random(chooser.random()), SIZES) for names in own]
    with at_work([worker.step for worker in workers]) as over:
        killer = Killer(cluster, chooser, over)
        while killer.kills < KILLS and not over.wait(chooser.uniform(0.0, 0.6)):
            killer.step()
    for worker in workers:
        worker.close()
    return killer.killed


def large_files(cluster: Cluster) -> list[Path]:
    """Files of large fragments on all devices."""
    files = Layout(cluster.data).devices.glob("d*/**/*")
    return [file for file in files if file.is_file() and "large" in file.relative_to(cluster.data).parts]


def assert_read(client: Client, model: PackedModel) -> dict[str, int]:
    """Read all objects: each shows its last acknowledged operation or a later one. Return sizes of those there are."""
    found: dict[str, int] = {}

    def read(name: Small) -> None:
        answer = client.call("GET", f"{CONTAINER}/{name.name}")
        assert answer.status in {200, 404}, (name, answer)
        assert model.judge(name, (name.acknowledged, name.based), answer) is None, (
            name,
            answer.status,
            len(answer.body),
        )
        if answer.status == 200:
            found[name.name] = len(answer.body)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(read, model.names))
    return found


def run_by_hand(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    """Do a round by hand."""
    command = [*cluster.services["replicator"]["command"], "--once", *options]
    known = {**environment(), **cluster.settings}
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=120, check=False)
