"""Our own daemons on the same loopback addresses: object servers with native stores, and rounds of the replicator.

What else the process of a replicator does is off, as OpenStack Swift has daemons of their own for it, which don't run:
expired objects, deleted accounts, the audit of listings.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml
from swiftlet_native import xxh3_64

from bench.peers.processes import Processes, children_cpu_s
from bench.peers.wire import Ended, Pass, Traffic, Wire, address_of
from e2e.standalone.cluster import environment
from swiftlet.model import ObjectKey, PutFooter, PutRecord
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import save
from swiftlet.store.native import NativeStore
from swiftlet.timestamp import Timestamp

PORT = 6200
_REPLICATORS_PORT = 6400
_ANSWER_S = 10.0
_KEY = "the key of a benchmark, no secret"


class Swiftlet:
    """One cluster below a directory."""

    def __init__(
        self, directory: Path, nodes: int, replicas: int, part_power: int, concurrency: int = 4, mode: str = "batched"
    ) -> None:
        """Write settings and rings; nothing runs yet."""
        self.nodes = nodes
        self._directory = directory
        self._processes = Processes(directory / "log")
        rings = directory / "rings"
        rings.mkdir(parents=True)
        (directory / "key").write_text(_KEY + "\n")
        builder = RingBuilder(part_power, replicas, min_part_hours=0)
        for node in range(nodes):
            host = address_of(node)
            builder.add_device(host=host, port=PORT, device="d", region="r", zone=f"z{node}", weight=1)
        builder.rebalance(500_000)
        self._ring = builder.ring
        for name in ("account", "container", "object-0"):
            save(self._ring, rings / f"{name}.ring")
        cluster = {
            "name": "bench",
            "hash_path_suffix": "benchmark",
            "key_file": str(directory / "key"),
            "rings": str(rings),
        }
        for node in range(nodes):
            self._devices(node).joinpath("d").mkdir(parents=True)
            host = address_of(node)
            served = {"host": host, "port": PORT, "devices_dir": str(self._devices(node)), "devices": ["d"]}
            rounds = {
                "host": host,
                "port": _REPLICATORS_PORT,
                "devices": [f"{host}:{PORT}/d"],
                "mode": mode,
                "concurrency": concurrency,
                "listing_audit_interval_s": 0,
            }
            alone = {"expirer": {"enabled": False}, "reaper": {"enabled": False}, "log": {"level": "warning"}}
            self._write(f"object-{node}", {"cluster": cluster, "object": served})
            self._write(f"replicator-{node}", {"cluster": cluster, "replicator": rounds, **alone})

    def _devices(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _write(self, name: str, settings: dict[str, object]) -> None:
        (self._directory / f"{name}.yaml").write_text(yaml.safe_dump(settings))

    def load(self, first: int, last: int, size: int, replicas: int) -> None:
        """Put objects on their first `replicas` devices; nothing may run."""
        stores = [NativeStore(self._devices(node) / "d") for node in range(self.nodes)]
        places = {address_of(node): stores[node] for node in range(self.nodes)}
        body = b"x" * size
        footer = PutFooter(size, hashlib.md5(body).hexdigest(), xxh3_64(body))
        for number in range(first, last):
            digest = hashlib.md5(str(number).encode()).digest()
            key = ObjectKey(0, self._ring.partition_of(digest), digest)
            record = PutRecord(f"/a/c/{number}", Timestamp.at(time.time() - 60), "text/plain")
            for device in self._ring.primaries(key.partition)[:replicas]:
                writer = places[device.host].create(key)
                writer.write(body)
                writer.commit(record, footer)
        for store in stores:
            store.close()

    def start_storage(self) -> None:
        """Start all object servers."""
        for node in range(self.nodes):
            self._processes.start(f"{node}-object", self._command("object", f"object-{node}"), environment())
        self._processes.wait_for((address_of(node), PORT) for node in range(self.nodes))

    def _command(self, kind: str, name: str) -> list[str]:
        return [sys.executable, "-m", "swiftlet.main", kind, "--config", str(self._directory / f"{name}.yaml")]

    def kill_node(self, node: int) -> None:
        """End the server of a node: connections are refused."""
        self._processes.stop(f"{node}-")

    def stop(self) -> None:
        """Stop all processes of the store."""
        self._processes.stop()

    def start_replicator(self, node: int) -> None:
        """Start `swiftlet replicator` on a node, which does a pass every ten seconds, as it comes."""
        self._processes.start(f"replicator-{node}", self._command("replicator", f"replicator-{node}"), environment())
        self._processes.wait_for([(address_of(node), _REPLICATORS_PORT)])

    def stop_replicator(self, node: int) -> None:
        self._processes.stop(f"replicator-{node}")

    def ended(self, node: int) -> Ended:
        """Return what the replicator of a node says of its last pass; asking takes bytes of the node with itself."""
        self._processes.alive()
        place = f"http://{address_of(node)}:{_REPLICATORS_PORT}"
        with urllib.request.urlopen(f"{place}/metrics", timeout=_ANSWER_S) as answer:
            number = int(float(re.findall(r"(?m)^swiftlet_replicator_rounds_total (.+)$", answer.read().decode())[0]))
        with urllib.request.urlopen(f"{place}/statusz", timeout=_ANSWER_S) as answer:
            rounds = json.load(answer)["lastRounds"]
        if not number or not rounds:
            return Ended(0)
        last = rounds[-1]
        return Ended(number, last["seconds"], last["pushed"] + last["pulled"], last["failed"] + last["skipped"])

    def cpu_s(self) -> float:
        """Return the processor time of all that runs."""
        return self._processes.cpu_s()

    def one_pass(self, node: int, wire: Wire) -> Pass:
        """`swiftlet replicator --once` on a node."""
        wire.take()
        cpu_s, own_s, began = self._processes.cpu_s(), children_cpu_s(), time.monotonic()
        command = [*self._command("replicator", f"replicator-{node}"), "--once"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
        seconds = time.monotonic() - began
        cpu_s = self._processes.cpu_s() - cpu_s + children_cpu_s() - own_s
        try:
            report = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise RuntimeError(f"the round ended with {done.returncode}: {done.stderr[-3000:]}") from error
        traffic = wire.take()
        local = traffic.pop(node)
        moved = report["pushed"] + report["pulled"]
        failed = report["failed"] + report["skipped"]
        return Pass(sum(traffic, Traffic(0, 0)), local, seconds, report["seconds"], cpu_s, moved, failed)
