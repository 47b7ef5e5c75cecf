"""Movers of containers between the policies of a store, as operators run them, and what is so when they are done."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import IO, Any

import pytest

from e2e.standalone.cluster import SOURCES, Cluster, environment
from e2e.standalone.model_clients import NUMBER
from e2e.standalone.model_history import History, Version
from e2e.standalone.wire import Client
from swiftlet.api.http.reserved import versions_container
from swiftlet.errors import NotFound
from swiftlet.main.commands.policy_move import Moving, Wanted, moving
from swiftlet.model import DatabaseName
from swiftlet.names import Path
from swiftlet.policy_mover.container_pass import PassReport
from swiftlet.policy_moves import Phase
from swiftlet.settings import ProxySettings, load_settings

BRIEFLY = {
    # Movers wait for as long as any service remembers a container. Here none does for long: no grants of the front,
    # nothing expires.
    "SWIFTLET_PROXY__CONTAINER_INFO_TTL_S": "0.5",
    "SWIFTLET_METADATA__CONTAINER_INFO_TTL_S": "0.5",
    "SWIFTLET_EXPIRER__ENABLED": "false",
    "SWIFTLET_REAPER__ENABLED": "false",
}
SETTINGS = {
    "SWIFTLET_METADATA__GRANT_LIFE_S": "1",
    "SWIFTLET_METADATA__MAX_GRANT_LIFE_S": "1",
    "SWIFTLET_PROXY__ANSWER_TIMEOUT_S": "1",
    "SWIFTLET_PROXY__CONNECT_TIMEOUT_S": "0.3",
}
STILL_BYTES = 20_000
Way = tuple[str, str]
"""The policies from and to which a container moves."""
Process = subprocess.Popen[str]


@dataclass
class Movers:
    """Runs `swiftlet policy move` of one store, whose services it has asked about."""

    cluster: Cluster
    account: str
    within_s: float
    """For all runs of movers that are not killed."""
    last_error: str = ""
    """What one that has ended has said on its standard error."""

    def services(self) -> list[str]:
        """Return the URLs of those that no ring names."""
        names = [name for name in self.cluster.services if not name.startswith(("object-", "container-"))]
        return [self.cluster.management_url(name) for name in names]

    def begin(self, source: str, target: str, *options: str, err: int | IO[str] = subprocess.PIPE) -> Process:
        """Start one. Who reads only what it says has `err` be a file: it may say much there, and waits to be heard."""
        config = str(self.cluster.settings_file("proxy"))
        told = [text for url in self.services() for text in ("--service", url)]
        command = [sys.executable, "-m", "swiftlet.main", "policy", "move", source, target, "--config", config]
        return subprocess.Popen(
            [*command, "--json", *told, *options],
            env={**environment(), **self.cluster.settings, "PYTHONPATH": str(SOURCES)},
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )

    def run(self, source: str, target: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
        """Run it to its end; the code with which it ended, and what it said."""
        process = self.begin(source, target, *options)
        out, err = process.communicate(timeout=self.within_s)
        assert process.returncode in (0, 1), err
        assert "Traceback" not in err, err
        self.last_error = err
        return process.returncode, [json.loads(line) for line in out.splitlines()]

    def of(self, container: str) -> list[str]:
        """Options for one container, which stays in `moving`."""
        return ["--account", self.account, "--container", container, "--leave-moving"]

    def finish(self, container: str, source: str, target: str) -> list[dict[str, Any]]:
        """Run movers until one says that all objects are moved; what it said."""
        deadline = time.monotonic() + self.within_s
        while True:
            code, said = self.run(source, target, *self.of(container))
            if code == 0:
                return said
            assert time.monotonic() < deadline, (container, said, self.last_error)

    def must_have_moved(self, ways: Iterable[tuple[str, Way]], paths: Sequence[str]) -> None:
        """All is in the containers' targets and nothing in their sources, of these objects by themselves; then settle
        the moves: nobody writes.
        """
        settings = load_settings(ProxySettings, self.cluster.settings_file("proxy"))
        for container, way in ways:
            names = [path.partition("/")[2] for path in paths if path.startswith(f"{container}/")]
            asyncio.run(self._must_have_moved(settings, container, way, names))

    async def _must_have_moved(self, settings: ProxySettings, container: str, way: Way, names: Sequence[str]) -> None:
        wanted = Wanted(*way, services=self.services())
        async with moving(settings, wanted, lambda _told: None) as at_work:
            for name in (container, versions_container(container)):
                await _settled(at_work, DatabaseName(self.account, name))
            source = settings.load_policies().named(way[0])
            assert source is not None
            for name in names:
                with pytest.raises(NotFound):
                    await at_work.objects.head(Path(self.account, container, name), source.index, newest=True)


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


def put_still(client: Client, container: str, count: int) -> dict[str, History]:
    """Objects that nobody writes again, so that there is something to copy to the end; what is known of them."""
    found: dict[str, History] = {}
    for number in range(count):
        path, body = f"{container}/still{number}", f"{container} {number} ".encode() * (STILL_BYTES // 5)
        sent = {NUMBER: str(number), "Content-Type": "text/plain"}
        assert client.insist("PUT", path, sent, body=body).status == 201
        etag = md5(body, usedforsecurity=False).hexdigest()
        found[path] = History()
        found[path].settle(Version(etag, len(body), "text/plain", str(number)))
    return found
