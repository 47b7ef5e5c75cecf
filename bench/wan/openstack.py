"""OpenStack Swift over the regions of the lab.

Its ring spreads three replicas over the regions, one in each where there are three, over nine devices in all. In each
region run an object server with a worker for each device there, a container and an account server, rsync and the
replicator of objects. The region of the proxies has memcached and two proxies of two workers each: `PLAIN` as it ships,
and `NEAR` that reads in its own region first and writes there only (`read_affinity`, `write_affinity`); replicators
bring what it writes to the other regions. Everything else has its default.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.peers.openstack import (
    INSIDE,
    KEY,
    KINDS,
    PIPELINE,
    PROXY,
    REPLICATOR,
    RSYNC,
    STORAGE,
    TUNING,
    USER,
    VENV,
)
from bench.wan.lab import Lab, inside

DEVICES = 9
PLAIN, NEAR = 8180, 8181
"""The ports of the proxies."""
_MEMCACHED = 11311
_PART_POWER = 7
_REPLICAS = 3
_CONCURRENCY = 4
_CONNECTIONS = 60
_APP = "account_autocreate = true\n"
_AFFINITY = "sorting_method = affinity\nread_affinity = r{region}=100\nwrite_affinity = r{region}\n"


class OpenStackSwift:
    """One store with replicas in each of `where`, and proxies in the region `proxy`."""

    def __init__(self, lab: Lab, directory: Path, where: Sequence[str], proxy: str) -> None:
        """Write configuration and rings below a directory; nothing runs yet."""
        self._lab = lab
        self._where = tuple(where)
        self._proxy = proxy
        self._etc = directory / "etc"
        self._etc.mkdir(parents=True)
        (self._etc / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = wide-area lab\n")
        names = [f"d{number}" for number in range(-(-DEVICES // len(self._where)))]
        places = []
        for number, region in enumerate(self._where, 1):
            devices = directory / region
            for name in names:
                (devices / name).mkdir(parents=True)
                places.append(f"{lab.address(region)}/{number}/{name}")
            self._configure(region, devices, len(names))
        self._configure_proxies(directory)
        subprocess.run(
            self._command("rings", str(_PART_POWER), str(_REPLICAS), *places), capture_output=True, check=True
        )

    def start(self) -> None:
        """Start it; returns when all of it listens."""
        address = self._lab.address(self._proxy)
        for region in self._where:
            for kind in KINDS:
                self._start(region, f"{kind}", f"swift-{kind}-server", f"{region}-{kind}.conf")
            conf = str(self._etc / f"{region}-rsync.conf")
            self._run(region, "rsync", ["rsync", "--daemon", "--no-detach", "--config", conf])
            for kind, port in KINDS.items():
                self._wait(region, port, f"the {kind} server of {region}")
            self._start(region, "replicator", "swift-object-replicator", f"{region}-object.conf")
        self._run(self._proxy, "memcached", ["memcached", "-u", "root", "-l", address, "-p", str(_MEMCACHED)])
        self._wait(self._proxy, _MEMCACHED, "memcached")
        for port in (PLAIN, NEAR):
            self._start(self._proxy, f"proxy-{port}", "swift-proxy-server", f"proxy-{port}.conf")
        for port in (PLAIN, NEAR):
            self._wait(self._proxy, port, f"the proxy at port {port}")

    def stop(self) -> None:
        """End all of its processes."""
        self._lab.processes.stop("swift-")

    def target(self, port: int) -> dict[str, str]:
        """Return what a client takes to use one of the proxies."""
        endpoint = f"http://{self._lab.address(self._proxy)}:{port}"
        return {"api": "swift", "endpoint": endpoint, "user": USER, "key": KEY, "policy": ""}

    def _configure(self, region: str, devices: Path, workers: int) -> None:
        common = {"address": self._lab.address(region), "devices": devices, "etc": self._etc, "user": "root"}
        for kind, port in KINDS.items():
            of_kind = {"workers": workers if kind == "object" else 1, "chunk": TUNING.chunk_bytes}
            text = STORAGE.format(kind=kind, port=port, **of_kind, **common)
            if kind == "object":
                text += REPLICATOR.format(concurrency=_CONCURRENCY, **common)
            (self._etc / f"{region}-{kind}.conf").write_text(text)
        (self._etc / f"{region}-rsync.conf").write_text(RSYNC.format(node=region, **common))

    def _configure_proxies(self, directory: Path) -> None:
        common = {"address": self._lab.address(self._proxy), "memcached": _MEMCACHED, "connections": _CONNECTIONS}
        common |= {"workers": TUNING.proxy_workers, "chunk": TUNING.chunk_bytes}
        affinity = _AFFINITY.format(region=self._where.index(self._proxy) + 1)
        for port, more in ((PLAIN, ""), (NEAR, affinity)):
            text = PROXY.format(port=port, etc=self._etc, user="root", pipeline=PIPELINE, **common)
            assert _APP in text
            (self._etc / f"proxy-{port}.conf").write_text(text.replace(_APP, _APP + more))
        # What the programs write beside their logs.
        (directory / "cache").mkdir()

    def _command(self, what: str, *arguments: str) -> list[str]:
        return [str(VENV / "python"), INSIDE, what, str(self._etc), *arguments]

    def _start(self, region: str, name: str, program: str, conf: str) -> None:
        self._run(region, name, self._command("daemon", program, str(self._etc / conf)))

    def _run(self, region: str, name: str, command: Sequence[str]) -> None:
        self._lab.processes.start(f"swift-{region}-{name}", [*inside(region), *command])

    def _wait(self, region: str, port: int, what: str) -> None:
        self._lab.processes.wait_until(lambda: self._lab.listens(region, port), f"{what} listens")
