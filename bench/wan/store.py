"""Swiftlet over the regions of the lab: in each an object server, a container server, replicators and a proxy."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.wan.lab import Lab
from swiftlet.auth.users import hash_secret
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import save

PROXY, OBJECT, CONTAINER = 8080, 6200, 6201
_REPLICATOR, _DATABASE_REPLICATOR, _MANAGEMENT = 6300, 6301, 8090
_NATIVE_PORT_OFFSET = 1000
_PART_POWER = 7
_LONGEST_SOCKET_DIRECTORY = 64
USER = "test:tester"
HASH_PATH_SUFFIX = "wide-area lab"
CODED = "coded"
"""The name of the policy with erasure coding."""


class Store:
    """One store over all regions: every object, container and account has a replica in each of `where`."""

    def __init__(
        self,
        lab: Lab,
        directory: Path,
        where: Sequence[str] | None = None,
        write_quorums: Sequence[str] = ("majority",),
        replicas: int = 3,
        coding: tuple[int, int] | None = None,
    ) -> None:
        """Write its files below a directory. With fewer regions than replicas there are more devices in each.

        There is a storage policy for each of `write_quorums`, which has its name; the first one is the default. With
        another quorum than `majority` each region has as many devices as there are replicas, for its handoffs.
        `coding` are the fragments of data and of parity of one more policy, `CODED`, with a device for each fragment.
        """
        self.directory = directory
        self.key = secrets.token_urlsafe(18)
        self._lab = lab
        self._where = tuple(where or lab.regions)
        self._write_quorums = tuple(write_quorums)
        self._coding = coding
        devices = -(-replicas // len(self._where)) if set(write_quorums) == {"majority"} else replicas
        if coding is not None:
            devices = max(devices, -(-sum(coding) // len(self._where)))
        self._names = [f"d{number}" for number in range(devices)]
        (directory / "rings").mkdir(parents=True, exist_ok=True)
        (directory / "cluster.key").write_text(secrets.token_hex(32) + "\n")
        account, _, user = USER.partition(":")
        known = {"account": account, "user": user, "roles": ["admin"], "secret_hash": hash_secret(self.key)}
        (directory / "users.yaml").write_text(yaml.safe_dump([known]))
        for index in range(len(self._write_quorums)):
            self._save_ring(f"object-{index}", OBJECT, replicas)
        if coding is not None:
            self._save_ring(f"object-{len(self._write_quorums)}", OBJECT, sum(coding))
        for name in ("account", "container"):
            self._save_ring(name, CONTAINER, replicas)

    def start(self) -> None:
        """Start it; returns when every proxy is ready."""
        for region in self._where:
            for name in self._names:
                (self.directory / region / name).mkdir(parents=True, exist_ok=True)
            for kind, name, sections in self._services(region):
                config = self.directory / f"{region}-{name}.yaml"
                config.write_text(yaml.safe_dump({**self._common(region), **sections}))
                command = [sys.executable, "-m", "swiftlet.main", kind, "--config", str(config)]
                self._lab.start(region, f"{region}-{name}", command)
        for region in self._where:
            self._lab.processes.wait_until(partial(self._is_ready, region), f"the proxy of {region} is ready")

    def stop(self) -> None:
        """End all of its processes; it may be started again."""
        for region in self._where:
            self._lab.processes.stop(f"{region}-")

    def prove(self) -> None:
        """Return when every device is proved to lack nothing: until then a read asks several regions."""
        for region in self._where:
            self._lab.processes.wait_until(partial(self._is_proved, region), f"the devices of {region} are proved")

    def endpoint(self, region: str) -> str:
        """Return the URL of the proxy in a region."""
        return f"http://{self._lab.address(region)}:{PROXY}"

    def rounds(self, region: str) -> float:
        """Return how many rounds the replicator of a region's objects has ended; 0 when it does not answer."""
        return self._sum(region, "swiftlet_replicator_rounds_total ")

    def moved(self, region: str) -> float:
        """Return the bytes of objects that the replicator of a region has exchanged with other regions."""
        return self._sum(region, "swiftlet_replicator_region_bytes_total{")

    def _sum(self, region: str, metric: str) -> float:
        address = f"http://{self._lab.address(region)}:{_REPLICATOR}/metrics"
        lines = (self._lab.fetch(region, address) or "").splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(metric))

    def _is_ready(self, region: str) -> bool:
        return self._lab.fetch(region, f"http://{self._lab.address(region)}:{_MANAGEMENT}/readyz") is not None

    def _is_proved(self, region: str) -> bool:
        metrics = self._lab.fetch(region, f"http://{self._lab.address(region)}:{OBJECT}/metrics") or ""
        told = [
            line.split()[-1] for line in metrics.splitlines() if line.startswith("swiftlet_object_device_unproved{")
        ]
        return len(told) == len(self._names) and all(float(value) == 0 for value in told)

    def _save_ring(self, name: str, port: int, replicas: int) -> None:
        builder = RingBuilder(_PART_POWER, replicas, min_part_hours=0)
        for region in self._where:
            for device in self._names:
                host = self._lab.address(region)
                builder.add_device(host=host, port=port, device=device, region=region, zone=device, weight=1)
        builder.rebalance(int(time.time() // 3600))
        save(builder.ring, self.directory / "rings" / f"{name}.ring")

    def _common(self, region: str) -> dict[str, Any]:
        cluster = {
            "name": "wan",
            "hash_path_suffix": HASH_PATH_SUFFIX,
            "key_file": str(self.directory / "cluster.key"),
            "rings": str(self.directory / "rings"),
            "native_port_offset": _NATIVE_PORT_OFFSET,
        }
        # Of its own in each region: regions are on one machine, and would share memory.
        sockets = self.directory / region / "run"
        sockets.mkdir(parents=True, exist_ok=True)
        if len(str(sockets)) <= _LONGEST_SOCKET_DIRECTORY:
            cluster["native_socket_directory"] = str(sockets)
        policies: list[dict[str, Any]] = [
            {"index": index, "name": quorum, "default": index == 0, "write_quorum": quorum}
            for index, quorum in enumerate(self._write_quorums)
        ]
        if self._coding is not None:
            data, parity = self._coding
            policies.append({"index": len(policies), "name": CODED, "coding": {"data": data, "parity": parity}})
        return {"cluster": cluster, "policies": policies}

    def _services(self, region: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the subcommand, name and settings of each service of a region."""
        host = self._lab.address(region)
        served = {"host": host, "devices_dir": str(self.directory / region), "devices": self._names}
        objects = [f"{host}:{OBJECT}/{name}" for name in self._names]
        databases = [f"{host}:{CONTAINER}/{name}" for name in self._names]
        proxy = {"host": host, "port": PROXY, "management_port": _MANAGEMENT, "workers": 1, "region": region}
        auth = {"users_file": str(self.directory / "users.yaml")}
        return [
            ("object", "object", {"object": {**served, "port": OBJECT}}),
            ("container", "container", {"container": {**served, "port": CONTAINER}}),
            ("replicator", "replicator", {"replicator": {"host": host, "port": _REPLICATOR, "devices": objects}}),
            (
                "replicator",
                "database-replicator",
                {"replicator": {"host": host, "port": _DATABASE_REPLICATOR, "databases": databases}},
            ),
            ("proxy", "proxy", {"proxy": proxy, "auth": auth}),
        ]
