"""Containers move to erasure coding and out of it while clients use them, by movers that are killed.

Fault model: SIGKILL of the mover at random moments, again and again, in each direction at the same time; clients that
PUT, POST, COPY, DELETE and read meanwhile, through proxies that know a phase late, and go away in the middle. While
that goes on no read may show anything that the acknowledged operations do not allow. Afterwards everything is in the
new policy and nothing in the old one, the bytes are those of the ETags, and listings and totals say what objects there
are.

`SEED` chooses what is done and when a mover is killed, `KILLS` how often in each direction (`make move-kills`). A move
is settled a day after it began, which no test waits for: this one settles it by hand, once nobody writes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from e2e.standalone.cluster import SOURCES, Cluster, environment, start_cluster
from e2e.standalone.model_checks import Checks, settle, wait_until
from e2e.standalone.model_clients import NUMBER, Model, Worker
from e2e.standalone.model_history import History, Version
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Client
from swiftlet.api.http.reserved import versions_container
from swiftlet.errors import NotFound
from swiftlet.main.commands.policy_move import Moving, Wanted, moving
from swiftlet.model import DatabaseName
from swiftlet.names import Path as Name
from swiftlet.policy_mover.container_pass import PassReport
from swiftlet.policy_moves import Phase
from swiftlet.settings import ProxySettings, load_settings

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
STILL, STILL_BYTES = 10 + 4 * KILLS, 20_000
"""Objects of each container that nobody writes again, so that there is something to copy to the end."""
RATE = 20_000
"""Bytes per second of movers that are killed, so that they are killed while they copy."""
WITHIN_S = 240.0 if KILLS < 10 else 1200.0
"""For all runs of one mover that are not killed."""
# Movers wait for as long as any service remembers a container. Here none does for long: no grants of the front, nothing
# expires. With many kills all is as by default, and each phase takes more than a minute.
BRIEFLY = {
    "SWIFTLET_PROXY__CONTAINER_INFO_TTL_S": "0.5",
    "SWIFTLET_METADATA__CONTAINER_INFO_TTL_S": "0.5",
    "SWIFTLET_EXPIRER__ENABLED": "false",
    "SWIFTLET_REAPER__ENABLED": "false",
}
SETTINGS = {
    **(BRIEFLY if KILLS < 10 else {}),
    "SWIFTLET_METADATA__GRANT_LIFE_S": "1",
    "SWIFTLET_METADATA__MAX_GRANT_LIFE_S": "1",
    "SWIFTLET_PROXY__ANSWER_TIMEOUT_S": "1",
    "SWIFTLET_PROXY__CONNECT_TIMEOUT_S": "0.3",
    # What a killed mover leaves undecided is decided as soon as it may be.
    "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
    "SWIFTLET_REPLICATOR__CODED_RECOVERY_AFTER_S": "10",
}


@dataclass
class Movers:
    """Runs `swiftlet policy move` of one store, whose services it has asked about."""

    cluster: Cluster
    account: str

    def services(self) -> list[str]:
        """Return the URLs of those that no ring names."""
        names = [name for name in self.cluster.services if not name.startswith(("object-", "container-"))]
        return [self.cluster.management_url(name) for name in names]

    def begin(self, source: str, target: str, *options: str) -> subprocess.Popen[str]:
        config = str(self.cluster.settings_file("proxy"))
        told = [text for url in self.services() for text in ("--service", url)]
        command = [sys.executable, "-m", "swiftlet.main", "policy", "move", source, target, "--config", config]
        return subprocess.Popen(
            [*command, "--json", *told, *options],
            env={**environment(), **self.cluster.settings, "PYTHONPATH": str(SOURCES)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, source: str, target: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
        """Run it to its end; the code with which it ended, and what it said."""
        process = self.begin(source, target, *options)
        out, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode in (0, 1), err
        return process.returncode, [json.loads(line) for line in out.splitlines()]

    def of(self, container: str) -> list[str]:
        """Options for one container, which stays in `moving`."""
        return ["--account", self.account, "--container", container, "--leave-moving"]

    def kill_and_finish(self, container: str, source: str, target: str, chooser: random.Random) -> int:
        """Move a container by movers that are killed, then by some that are not; how many were killed in time."""
        killed = 0
        for number in range(KILLS):
            process = self.begin(source, target, *self.of(container), "--rate", str(RATE))
            if number:
                _wait_for_pass(process)
            try:
                process.communicate(timeout=chooser.uniform(*ALIVE_S))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
        self.finish(container, source, target)
        return killed

    def finish(self, container: str, source: str, target: str) -> list[dict[str, Any]]:
        """Run movers until one says that all objects are moved; what it said."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            code, said = self.run(source, target, *self.of(container))
            if code == 0:
                return said
            assert time.monotonic() < deadline, said


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


def put_still(client: Client, container: str) -> dict[str, History]:
    """Objects that nobody writes again; what is known of them."""
    found: dict[str, History] = {}
    for number in range(STILL):
        path, body = f"{container}/still{number}", f"{container} {number} ".encode() * (STILL_BYTES // 5)
        sent = {NUMBER: str(number), "Content-Type": "text/plain"}
        assert client.call("PUT", path, sent, body=body).status == 201
        etag = md5(body, usedforsecurity=False).hexdigest()
        found[path] = History()
        found[path].settle(Version(etag, len(body), "text/plain", str(number)))
    return found


def put_versions(client: Client) -> None:
    """A container with old versions, of which the hidden container has all but one."""
    assert client.call("PUT", VERSIONED, {"X-Storage-Policy": USUAL, "X-Versions-Enabled": "true"}).status == 201
    for number in range(VERSIONS):
        assert client.call("PUT", f"{VERSIONED}/o", body=f"version {number}".encode() * 1000).status == 201


def versions_of(client: Client) -> list[bytes]:
    """The bodies of all versions, the oldest first."""
    listed = client.call("GET", VERSIONED, query="versions&format=json").json()
    ids = [one["version_id"] for one in reversed(listed)]
    return [client.call("GET", f"{VERSIONED}/o", query=f"version-id={id}").body for id in ids]


async def must_be_in(
    settings: ProxySettings, movers: Movers, model: Model, container: str, way: tuple[str, str]
) -> None:
    """Everything is in the target and nothing in the source; then settle the move: nobody writes."""
    account, wanted = movers.account, Wanted(*way, services=movers.services())
    async with moving(settings, wanted, lambda _told: None) as at_work:
        for name in (container, versions_container(container)):
            await _settled(at_work, DatabaseName(account, name))
        source, target = (settings.load_policies().named(name) for name in way)
        assert source is not None
        assert target is not None
        for path in (one for one in model.histories if one.startswith(f"{container}/")):
            place = Name(account, container, path.partition("/")[2])
            with pytest.raises(NotFound):
                await at_work.objects.head(place, source.index, newest=True)


async def _settled(at_work: Moving, name: DatabaseName) -> None:
    try:
        standing = await at_work.phases.standing(name)
    except NotFound:
        return
    assert standing.phase is Phase.MOVING
    assert standing.move is not None
    report = PassReport()
    await at_work.make_pass(name, standing.move, report).look()
    assert report.found_nothing, report
    assert (await at_work.phases.settle(name)).phase is Phase.SETTLED


def totals_are_told(client: Client) -> None:
    """The account tells what its containers have by policy."""
    listed = [one["name"] for one in client.call("GET", query="format=json").json()]
    wanted: dict[str, int] = {}
    for policy in (USUAL, CODED):
        heads = [client.call("HEAD", name).headers for name in listed]
        there = [head for head in heads if head["X-Storage-Policy"] == policy]
        wanted[f"X-Account-Storage-Policy-{policy}-Object-Count".lower()] = sum(
            int(head["X-Container-Object-Count"]) for head in there
        )

    wanted[f"X-Account-Storage-Policy-{CODED}-Object-Count".lower()] += VERSIONS
    told: list[dict[str, int]] = []

    def is_right() -> bool:
        headers = {name.lower(): value for name, value in client.call("HEAD").headers.items()}
        told.append({name: int(headers.get(name, 0)) for name in wanted})
        return told[-1] == wanted

    try:
        wait_until(is_right, "the account's totals")
    except AssertionError as error:
        raise AssertionError(f"the account tells {told[-1]}, its containers are {wanted}") from error


def look(checks: Checks) -> None:
    """Objects are as the model allows, and listings as the objects."""
    checks._listings(checks._objects())


@pytest.mark.timeout(600 + 60 * KILLS)
def test_containers_move_both_ways_while_clients_use_them_and_movers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"SEED={SEED} KILLS={KILLS}")
    chooser, begun = random.Random(SEED), time.monotonic()
    model = Model({f"{name}/o{number}": History() for number in range(NAMES) for name in WAYS})
    cluster = start_cluster(tmp_path / "store", "--policies", f"{USUAL},{CODED}=4+2", settings=SETTINGS)
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        for name, (source, _) in WAYS.items():
            assert client.call("PUT", name, {"X-Storage-Policy": source}).status == 201
        put_versions(client)
        still = {path: history for name in WAYS for path, history in put_still(client, name).items()}
        movers = Movers(cluster, client.account)
        everything = {**WAYS, VERSIONED: (USUAL, CODED)}
        with ThreadPoolExecutor(len(everything)) as pool:
            with used(client, model, chooser):
                versions = pool.submit(movers.finish, VERSIONED, *everything[VERSIONED])
                runs = {
                    name: pool.submit(movers.kill_and_finish, name, *way, random.Random(chooser.random()))
                    for name, way in WAYS.items()
                }
                killed = {name: run.result() for name, run in runs.items()}
                assert versions.result()
            # Nobody writes any more: what was written during the last passes is moved.
            assert all(pool.map(lambda name: movers.finish(name, *WAYS[name]), WAYS))
        print(f"{time.monotonic() - begun:.0f} s: killed {killed}, {dict(sorted(model.counts.items()))}")
        assert model.wrong == [], f"{len(model.wrong)} answers are wrong: {model.wrong[:5]}"
        assert model.written > 50
        model.histories |= still
        code, said = movers.run(USUAL, CODED, "--leave-moving")
        problems = {one["container"] for one in said if "problem" in one}
        assert (code, problems) == (1, {"m1"}), "one that moves the other way can't be moved yet"
        moved = {(one["container"], one["versions"]) for one in said if one.get("phase") == "moving"}
        assert moved == {("m0", False), (VERSIONED, False), (VERSIONED, True)}
        _, said = movers.run(USUAL, CODED, "--status")
        told = {one["container"]: one for one in said if "left" in one}
        assert (told["m0"]["phase"], told["m0"]["left"]) == ("moving", 0)
        assert told["m0"]["settlesAt"] > time.time() + 80_000
        settle(cluster)
        checks = Checks(cluster, client, model)
        look(checks)
        print(f"{time.monotonic() - begun:.0f} s: moved and looked at")
        for variable, value in cluster.settings.items():
            monkeypatch.setenv(variable, value)
        settings = load_settings(ProxySettings, cluster.settings_file("proxy"))
        for name, way in everything.items():
            asyncio.run(must_be_in(settings, movers, model, name, way))
            assert client.call("HEAD", name).headers["X-Storage-Policy"] == way[1]
        totals_are_told(client)
        look(checks)
        assert versions_of(client) == [f"version {number}".encode() * 1000 for number in range(VERSIONS)]
        print(f"{time.monotonic() - begun:.0f} s in all")
    except BaseException as error:
        error.add_note(f"SEED={SEED} KILLS={KILLS}")
        raise
    finally:
        cluster.stop()
