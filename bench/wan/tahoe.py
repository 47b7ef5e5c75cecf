"""Tahoe-LAFS over the regions of the lab.

An introducer and two gateways are in the client's region, as the study had them on its meta host: one gateway encodes
3 of 10, which is its default, and one 6 of 9. Nine storage servers are spread over the regions. All of them are
Tahoe-LAFS's own nodes with their defaults; nothing is synced to disk before an upload is acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.wan.lab import Lab, inside

VENV = Path(".cache/bench-tahoe/venv/bin").absolute()
SERVERS = 9
CODINGS: Mapping[str, tuple[int, int]] = {"3 of 10": (3, 10), "6 of 9": (6, 9)}
_INTRODUCER, _STORAGE, _TUB, _WEB = 3440, 3460, 3480, 3490

_NODE = """\
[node]
nickname = {name}
tub.port = tcp:{port}:interface={address}
tub.location = tcp:{address}:{port}
"""
_SERVER = """\
web.port =
[client]
[storage]
enabled = true
reserved_space = 0
[helper]
enabled = false
"""
_GATEWAY = """\
web.port = tcp:{web}:interface={address}
[client]
shares.needed = {needed}
shares.total = {total}
shares.happy = {happy}
[storage]
enabled = false
[helper]
enabled = false
"""
_HAPPY = 7
"""Servers that must have shares of an upload: the default."""


class Tahoe:
    """One grid with storage servers in each of `where`, and gateways in the region `client`."""

    def __init__(self, lab: Lab, directory: Path, where: Sequence[str], client: str) -> None:
        """Write the nodes' folders below a directory; nothing runs yet."""
        self._lab = lab
        self._directory = directory
        self._client = client
        self._servers = {f"server-{number}": where[number % len(where)] for number in range(SERVERS)}
        address = lab.address(client)
        self._make("introducer", "introducer", _NODE.format(name="introducer", port=_INTRODUCER, address=address))
        for number, (name, region) in enumerate(self._servers.items()):
            node = _NODE.format(name=name, port=_STORAGE + number, address=lab.address(region))
            self._make(name, "client", node + _SERVER)
        for number, (coding, (needed, total)) in enumerate(CODINGS.items()):
            node = _NODE.format(name=coding, port=_TUB + number, address=address)
            gateway = _GATEWAY.format(web=_WEB + number, address=address, needed=needed, total=total, happy=_HAPPY)
            self._make(f"gateway-{number}", "client", node + gateway)

    def start(self) -> None:
        """Start it; returns when both gateways are connected to all servers."""
        furl = self._directory / "introducer" / "private" / "introducer.furl"
        self._run("introducer", self._client)
        self._lab.processes.wait_until(furl.exists, "the introducer has its address")
        known = json.dumps({"introducers": {"lab": {"furl": furl.read_text().strip()}}})
        gateways = [f"gateway-{number}" for number in range(len(CODINGS))]
        for name in (*self._servers, *gateways):
            (self._directory / name / "private" / "introducers.yaml").write_text(known)
        for name, region in self._servers.items():
            self._run(name, region)
        for name in gateways:
            self._run(name, self._client)
        for number, name in enumerate(gateways):
            self._lab.processes.wait_until(partial(self._is_ready, number), f"{name} is connected to all servers")

    def stop(self) -> None:
        """End all of its processes; they do not end soon by themselves, and what they stored is in files."""
        self._lab.processes.stop("tahoe-", within_s=2.0)

    def target(self, coding: str) -> dict[str, str]:
        """Return what a client takes to use the gateway of a coding."""
        return {"api": "tahoe", "endpoint": self._url(list(CODINGS).index(coding))}

    def _make(self, name: str, kind: str, config: str) -> None:
        folder = self._directory / name
        (folder / "private").mkdir(parents=True)
        (folder / "tahoe.cfg").write_text(config)
        # The name of this file is how the program tells what a folder is.
        (folder / f"tahoe-{kind}.tac").write_text("")

    def _run(self, name: str, region: str) -> None:
        command = [str(VENV / "tahoe"), "run", "--allow-stdin-close", str(self._directory / name)]
        self._lab.processes.start(f"tahoe-{name}", [*inside(region), *command])

    def _url(self, number: int) -> str:
        return f"http://{self._lab.address(self._client)}:{_WEB + number}"

    def _is_ready(self, number: int) -> bool:
        return connected(self._lab.fetch(self._client, f"{self._url(number)}/?t=json") or "{}") == SERVERS


def connected(page: str) -> int:
    """Return how many storage servers a gateway is connected to, by its page in JSON."""
    servers = json.loads(page).get("servers", [])
    return sum(str(server.get("connection_status", "")).lower().startswith("connected") for server in servers)
