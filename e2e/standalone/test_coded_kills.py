"""A store of 4+2 whose processes are killed and whose devices are wiped under load: nothing acknowledged is lost.

Fault model: SIGKILL of the proxy, of workers of it, of the replicator and of up to two object servers at a time, at
random moments; devices that come back empty, one at a time, and the next one only after the replicators have proved
that all is whole again. Up to five devices serve then, of seven. While that goes on no read may show anything that the
acknowledged operations do not allow, nor pieces of two writes. In the end everything is whole by proof, listed, and
read with any two servers away; once all is deleted no fragment is left.

`SEED` chooses what is done and killed, `KILLS` how many processes are killed at least (`make coded-kills`).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.standalone.cluster import Cluster, environment, start_cluster
from e2e.standalone.coded_model import SIZES, Model, Name, Worker, body_of, repeated
from e2e.standalone.wire import Client
from swiftlet.main.commands.standalone.plan import Layout

SEED = int(os.environ.get("SEED", "1"))
KILLS = int(os.environ.get("KILLS", "6"))
CLIENTS = 4
NAMES = 6
"""Objects of each client."""
RING = "object-1"
SERVERS = [f"object-{number}" for number in range(1, 8)]
AWAY_S = (0.0, 0.2, 1.0)
WIPE_EVERY = 6
"""Kills after which a device is wiped, if all is whole again."""
WHOLE_WITHIN_S = 180.0
LARGE_BYTES = 1 << 20
"""Fragments above this have files of their own."""
SETTINGS = {
    "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
    "SWIFTLET_REPLICATOR__CODED_RECOVERY_AFTER_S": "10",
    "SWIFTLET_REPLICATOR__PROBE_INTERVAL_S": "0.5",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = start_cluster(tmp_path_factory.mktemp("kills"), "--policies", "usual,coded=4+2", settings=SETTINGS)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    made = Client(cluster.endpoint, cluster.user, cluster.key)
    assert made.call("PUT", "c", {"X-Storage-Policy": "coded"}).status == 201
    return made


def report_of(cluster: Cluster) -> dict[str, Any]:
    """The replicator's status report."""
    with urllib.request.urlopen(cluster.url("replicator") + "/statusz", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def is_whole(cluster: Cluster, since_s: float) -> bool:
    """Whether all devices have proved since then that they lack nothing, and that nothing is undecided."""
    try:
        report = report_of(cluster)
    except OSError:
        return False
    rings = [device["rings"].get(RING) for device in report["devices"].values()]
    proved = len(rings) == len(SERVERS) and all(ring and (ring["syncedAt"] or 0) > since_s for ring in rings)
    repairs = report["repairs"] or {}
    return proved and not (repairs["undecided"] or repairs["left"])


def wait_until_whole(cluster: Cluster, since_s: float) -> None:
    """Wait for that proof."""
    deadline = time.monotonic() + WHOLE_WITHIN_S
    while not is_whole(cluster, since_s):
        assert time.monotonic() < deadline, json.dumps(report_of(cluster), indent=1)
        time.sleep(0.2)


class Killer:
    """Kills processes of a store, and wipes devices."""

    def __init__(self, cluster: Cluster, chooser: random.Random, over: threading.Event) -> None:
        """`over` ends its pauses."""
        self._cluster = cluster
        self._chooser = chooser
        self._over = over
        self._wiped_s: float | None = None
        self._last_wipe = 0
        self.killed: Counter[str] = Counter()

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(self.killed.values()) - self.killed["wiped"]

    def step(self) -> None:
        """Kill some processes at once, and start them again."""
        victims = self._chooser.choice((self._servers, self._servers, self._proxy, self._replicator, self._mixed))()
        if not victims:
            return
        self._cluster.kill(*victims)
        wiped = self._wipe(victims)
        self._over.wait(self._chooser.choice(AWAY_S))
        self._cluster.start(*victims)
        if wiped:
            self._wiped_s = time.time()
        for victim in victims:
            self.killed[victim.partition("-")[0]] += 1

    def _servers(self) -> list[str]:
        return self._chooser.sample(SERVERS, self._chooser.choice((1, 1, 2)))

    def _mixed(self) -> list[str]:
        return [self._chooser.choice(SERVERS), self._chooser.choice(("proxy", "replicator"))]

    def _replicator(self) -> list[str]:
        return ["replicator"]

    def _proxy(self) -> list[str]:
        if self._chooser.random() < 0.3:
            return ["proxy"]
        workers = psutil.Process(self._cluster.pids["proxy"]).children()
        if workers:
            self._chooser.choice(workers).kill()
            self.killed["worker"] += 1
        return []

    def _wipe(self, victims: list[str]) -> bool:
        """Take away all that the first of the victims has on its device, if nothing else is missing anywhere."""
        due = self.kills - self._last_wipe >= WIPE_EVERY and victims[0] in SERVERS and "replicator" not in victims
        if not due or (self._wiped_s is not None and not is_whole(self._cluster, self._wiped_s)):
            return False
        for kept in (Layout(self._cluster.data).devices / f"d{victims[0].partition('-')[2]}").iterdir():
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        self._last_wipe = self.kills
        self.killed["wiped"] += 1
        return True


def disturbed(cluster: Cluster, client: Client, model: Model, chooser: random.Random) -> Counter[str]:
    """Load the store while processes are killed; return how many of each were."""
    over = threading.Event()
    own = [model.names[number::CLIENTS] for number in range(CLIENTS)]
    workers = [Worker(client, model, names, random.Random(chooser.random())) for names in own]
    killer = Killer(cluster, chooser, over)
    with ThreadPoolExecutor(CLIENTS) as pool:
        work = [pool.submit(repeated, worker.step, over) for worker in workers]
        try:
            while killer.kills < KILLS and not over.wait(chooser.uniform(0.0, 0.6)):
                killer.step()
        finally:
            over.set()
        for one in work:
            one.result()
    for worker in workers:
        worker.close()
    return killer.killed


def large_files(cluster: Cluster) -> list[Path]:
    """Files of large fragments on all devices."""
    files = Layout(cluster.data).devices.glob("d*/**/*")
    return [file for file in files if file.is_file() and "large" in file.relative_to(cluster.data).parts]


def assert_read(client: Client, model: Model) -> dict[str, int]:
    """Read all objects: each shows its last acknowledged operation or a later one. Return sizes of those there are."""
    found: dict[str, int] = {}

    def read(name: Name) -> None:
        answer = client.call("GET", f"c/{name.name}")
        assert answer.status in {200, 404}, (name, answer)
        assert model.judge(name, name.acknowledged, answer), (name, answer.status, len(answer.body))
        if answer.status == 200:
            found[name.name] = len(answer.body)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(read, model.names))
    return found


@pytest.mark.timeout(300 + 15 * KILLS)
def test_nothing_acknowledged_is_lost_and_nothing_abandoned_stays(cluster: Cluster, client: Client) -> None:
    print(f"SEED={SEED} KILLS={KILLS}")
    chooser, begun = random.Random(SEED), time.monotonic()
    model = Model([Name(f"o{number}") for number in range(CLIENTS * NAMES)])
    killed = disturbed(cluster, client, model, chooser)
    assert model.wrong == [], f"SEED={SEED}: {len(model.wrong)} answers are wrong: {model.wrong[:5]}"
    quiet_s, loaded_s = time.time(), time.monotonic() - begun
    # What is younger than 10 s is not compared; what is undecided is decided after 10 s.
    wait_until_whole(cluster, quiet_s + 10.5)
    whole_s = time.time() - quiet_s
    found = assert_read(client, model)
    redundancy = report_of(cluster)["repairs"]["redundancy"]["coded"]
    assert {name for name, count in redundancy["partitions"].items() if count} <= {"6"}
    assert set(redundancy["objects"].values()) == {0}
    pairs = list(itertools.combinations(SERVERS, 2))
    for away in chooser.sample(pairs, 2 if KILLS < 100 else 8):
        cluster.kill(*away)
        assert assert_read(client, model) == found, away
        cluster.start(*away)
    rows = {row["name"]: row["bytes"] for row in client.call("GET", "c", query="format=json").json()}
    assert rows == found
    large = sum(size > 4 * LARGE_BYTES for size in found.values())
    assert len(large_files(cluster)) == 6 * large
    for name in found:
        assert client.call("DELETE", f"c/{name}").status == 204
    wait_until_whole(cluster, time.time() + 10.5)
    assert large_files(cluster) == []
    print(
        f"{loaded_s:.0f} s: killed {dict(killed)}; whole again by proof after {whole_s:.0f} s; {len(found)} objects, "
        f"{large} of them large; answers {dict(sorted(model.counts.items()))}"
    )


def test_a_round_by_hand(cluster: Cluster, client: Client) -> None:
    name, size = "by-hand", SIZES[-1]
    assert client.call("PUT", f"c/{name}", body=body_of(name, 1, size)).status == 201
    report = by_hand(cluster, "--policy", "coded")
    assert report["repairs"]["failed"] == report["repairs"]["unchecked"] == 0
    assert report["compared"] == 0
    done = run_by_hand(cluster, "--policy", "coded", "--node", "z1")
    assert done.returncode != 0
    assert "coded has erasure coding, whose places are compared with all others" in done.stderr
    assert client.call("DELETE", f"c/{name}").status == 204


def by_hand(cluster: Cluster, *options: str) -> dict[str, Any]:
    """What a round by hand reports."""
    done = run_by_hand(cluster, *options)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_by_hand(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    """Do a round by hand."""
    command = [*cluster.services["replicator"]["command"], "--once", *options]
    known = {**environment(), **cluster.settings}
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=120, check=False)
