"""OpenStack Swift's own daemons on loopback addresses: configuration, rings, data, rounds of its object replicator.

Everything is as its documentation's "all in one" sets it up, with one address a node: account, container and object
server (which also answers replication) and an rsync daemon; one memcached; a proxy with TempAuth. How many workers they
have, and in which pieces they move bytes, `Tuning` says; `bench.peers.tuning` tries others.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.processes import Processes, children_cpu_s
from bench.peers.wire import Ended, Pass, Traffic, Wire, address_of
from swiftlet.bench.runner import MAX_PREPARING

VENV = Path(".cache/bench-peers/venv/bin").absolute()
INSIDE = str(Path(__file__).with_name("inside.py"))
PROXY_PORT = 8180
_MEMCACHED_PORT = 11311
_END_WITHIN_S = 600.0
_COMPLETE = "Object replication complete"
KINDS = {"object": 6200, "container": 6201, "account": 6202}
USER, KEY = "test:tester", "testing"

STORAGE = """\
[DEFAULT]
bind_ip = {address}
bind_port = {port}
workers = {workers}
devices = {devices}
mount_check = false
user = {user}
swift_dir = {etc}
log_level = WARNING
fallocate_reserve = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
disk_chunk_size = {chunk}
network_chunk_size = {chunk}
"""
REPLICATOR = """\
[object-replicator]
concurrency = {concurrency}
rsync_module = {{replication_ip}}::object
recon_cache_path = {etc}
log_level = INFO
"""
_DATABASE_REPLICATOR = """\
[{kind}-replicator]
concurrency = {concurrency}
rsync_module = {{replication_ip}}::{kind}
recon_cache_path = {etc}
log_level = INFO
"""
RSYNC = """\
uid = {user}
gid = {user}
use chroot = no
address = {address}
port = 873
pid file = {etc}/rsync-{node}.pid
reverse lookup = no
[object]
path = {devices}
read only = false
max connections = 25
lock file = {etc}/rsync-{node}.lock
[container]
path = {devices}
read only = false
max connections = 25
lock file = {etc}/rsync-{node}-container.lock
[account]
path = {devices}
read only = false
max connections = 25
lock file = {etc}/rsync-{node}-account.lock
"""
PROXY = """\
[DEFAULT]
bind_ip = {address}
bind_port = {port}
workers = {workers}
user = {user}
swift_dir = {etc}
log_level = WARNING
[pipeline:main]
pipeline = {pipeline}
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
client_chunk_size = {chunk}
object_chunk_size = {chunk}
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:cache]
use = egg:swift#memcache
memcache_servers = {address}:{memcached}
# A request that gets none of these for a second counts as an error of memcached. After ten of them a worker leaves it
# alone for a minute, and TempAuth, whose tokens are in it, answers 401 meanwhile: two, the default, are too few for
# the {connections} connections over which `swiftlet bench` stores objects.
memcache_max_connections = {connections}
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:proxy-logging]
use = egg:swift#proxy_logging
"""
PIPELINE = "catch_errors gatekeeper healthcheck proxy-logging cache tempauth proxy-logging proxy-server"
_SYNC_PIPELINE = (
    "catch_errors gatekeeper healthcheck proxy-logging cache container_sync tempauth slo dlo symlink "
    "proxy-logging proxy-server"
)
_SYNC_FILTERS = """\
[filter:container_sync]
use = egg:swift#container_sync
current = //US/OPENSTACK
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:symlink]
use = egg:swift#symlink
"""
_SYNC_DAEMON = """\
[container-sync]
internal_client_conf_path = {etc}/internal-client.conf
log_level = INFO
"""
_INTERNAL_CLIENT = """\
[DEFAULT]
swift_dir = {etc}
[pipeline:main]
pipeline = catch_errors cache symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}
[filter:symlink]
use = egg:swift#symlink
[filter:catch_errors]
use = egg:swift#catch_errors
"""


@dataclass(frozen=True)
class Tuning:
    """What an operator of OpenStack Swift chooses by the machine; the numbers without a reason are its defaults."""

    proxy_workers: int = 2
    """Its default is one for each processor."""
    storage_workers: int = 1
    """Of each account, container and object server. Its default is one for each processor, too; four nodes share two
    processors here.
    """
    chunk_bytes: int = 65_536


TUNING = Tuning()
"""The one that stores are measured with."""


class OpenStack:
    """One cluster below a directory."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        replicas: int,
        part_power: int,
        concurrency: int = 4,
        realms: str | None = None,
        spare: int = 0,
        tuning: Tuning = TUNING,
    ) -> None:
        """Write configuration and rings; nothing runs yet. With `realms`, the text of a file, it has container sync.

        So many `spare` nodes have a configuration, and are in no ring before `grow`.
        """
        self.nodes = nodes
        self._etc = directory / "etc"
        self._etc.mkdir(parents=True)
        self._directory = directory
        self._processes = Processes(directory / "log")
        self._replicators: dict[int, Processes] = {}
        """Replicators that go on, by node."""
        (self._etc / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = benchmark\n")
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        for node in range(nodes + spare):
            (self._devices(node) / "d").mkdir(parents=True)
            common = {
                "address": address_of(node),
                "devices": self._devices(node),
                "etc": self._etc,
                "user": user,
                "node": node,
                "workers": tuning.storage_workers,
                "chunk": tuning.chunk_bytes,
            }
            for kind, port in KINDS.items():
                text = STORAGE.format(kind=kind, port=port, **common)
                if kind == "object":
                    text += REPLICATOR.format(concurrency=concurrency, **common)
                else:
                    text += _DATABASE_REPLICATOR.format(kind=kind, concurrency=concurrency, **common)
                if kind == "container" and realms is not None:
                    text += _SYNC_DAEMON.format(**common)
                (self._etc / f"{kind}-{node}.conf").write_text(text)
            (self._etc / f"rsync-{node}.conf").write_text(RSYNC.format(**common))
        pipeline = PIPELINE if realms is None else _SYNC_PIPELINE
        at = {"address": "127.0.0.1", "port": PROXY_PORT, "memcached": _MEMCACHED_PORT}
        at |= {"workers": tuning.proxy_workers, "chunk": tuning.chunk_bytes}
        proxy = PROXY.format(**at, etc=self._etc, user=user, pipeline=pipeline, connections=MAX_PREPARING)
        if realms is not None:
            proxy += _SYNC_FILTERS
            (self._etc / "container-sync-realms.conf").write_text(realms)
            internal = _INTERNAL_CLIENT.format(etc=self._etc, memcached=_MEMCACHED_PORT)
            (self._etc / "internal-client.conf").write_text(internal)
        (self._etc / "proxy.conf").write_text(proxy)
        addresses = [address_of(node) for node in range(nodes)]
        self._inside("rings", str(part_power), str(replicas), *addresses)

    def _devices(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _command(self, what: str, *arguments: str) -> list[str]:
        return [str(VENV / "python"), INSIDE, what, str(self._etc), *arguments]

    def _inside(self, what: str, *arguments: str) -> str:
        done = subprocess.run(self._command(what, *arguments), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{what}: {done.stderr[-3000:]}")
        return done.stdout

    def load(self, first: int, last: int, size: int, replicas: int) -> None:
        """Put objects on their first `replicas` devices."""
        places = [f"{address_of(node)}={self._devices(node)}" for node in range(self.nodes)]
        self._inside("load", str(first), str(last), str(size), str(replicas), *places)

    # -- running ---------------------------------------------------------------------------------------------

    def start_storage(self, kinds: tuple[str, ...] = ("object",)) -> None:
        """Start these servers and rsync on all nodes."""
        self.start_nodes(range(self.nodes), kinds)

    def start_nodes(self, nodes: Iterable[int], kinds: Sequence[str]) -> None:
        """Start these servers and rsync on some nodes."""
        chosen = list(nodes)
        for node in chosen:
            self._start(node, kinds)
            rsync = ["rsync", "--daemon", "--no-detach", "--config", str(self._etc / f"rsync-{node}.conf")]
            self._processes.start(f"{node}-rsync", rsync)
        ports = [KINDS[kind] for kind in kinds] + [873]
        self._processes.wait_for((address_of(node), port) for node in chosen for port in ports)

    def grow(self) -> None:
        """Give the first spare node, whose servers run, its share in all rings; servers read them by themselves."""
        self._inside("grow", address_of(self.nodes))
        self.nodes += 1

    def has_handoffs(self) -> bool:
        """Return whether a node has objects or databases of a partition that belongs on others."""
        primaries = json.loads(self._inside("primaries"))
        for node in range(self.nodes):
            for kind, ending in (("object", "data"), ("container", "db"), ("account", "db")):
                place = self.device(node) / f"{kind}s"
                parts = [one for one in place.iterdir() if one.name.isdigit()] if place.is_dir() else []
                strange = (one for one in parts if address_of(node) not in primaries[kind][int(one.name)])
                if any(next(one.rglob(f"*.{ending}"), None) for one in strange):
                    return True
        return False

    def _start(self, node: int, kinds: Sequence[str]) -> None:
        for kind in kinds:
            command = self._command("daemon", f"swift-{kind}-server", str(self._etc / f"{kind}-{node}.conf"))
            self._processes.start(f"{node}-{kind}", command)

    def start_proxy(self) -> None:
        """Start memcached and the proxy."""
        self._processes.start("memcached", ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(_MEMCACHED_PORT)])
        self._processes.wait_for([("127.0.0.1", _MEMCACHED_PORT)])
        self._start_proxy()

    def _start_proxy(self) -> None:
        self._processes.start("proxy", self._command("daemon", "swift-proxy-server", str(self._etc / "proxy.conf")))
        self._processes.wait_for([("127.0.0.1", PROXY_PORT)])

    def restart(self, node: int, kind: str) -> None:
        """End a server of a node as its operator does, so that requests are answered to their end, and start it."""
        self._processes.drain(f"{node}-{kind}")
        self.start_servers(node, (kind,))

    def restart_proxy(self) -> None:
        """Do so with the proxy."""
        self._processes.drain("proxy")
        self._start_proxy()

    def family(self, node: int, kind: str) -> list[int]:
        """Return the processes of a server of a node."""
        return self._processes.family(f"{node}-{kind}")

    def proxy_workers(self) -> list[int]:
        """Return the workers of the proxy."""
        return self._processes.family("proxy")[1:]

    def sync_containers(self, node: int = 0) -> str:
        """Run `swift-container-sync --once` on a node; return what it says."""
        conf = str(self._etc / f"container-{node}.conf")
        done = subprocess.run(
            self._command("daemon", "swift-container-sync", conf, "--once", "--verbose"),
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        if done.returncode or "mode completed" not in said:
            raise RuntimeError(f"container-sync ended with {done.returncode}: {said[-3000:]}")
        return said

    def kill_node(self, node: int) -> None:
        """End all servers of a node: connections are refused."""
        self._processes.stop(f"{node}-")

    def end_servers(self, node: int, kinds: Sequence[str]) -> None:
        """End some servers of a node."""
        for kind in kinds:
            self._processes.stop(f"{node}-{kind}")

    def start_servers(self, node: int, kinds: Sequence[str]) -> None:
        """Start servers of a node that were ended."""
        self._start(node, kinds)
        self._processes.wait_for((address_of(node), KINDS[kind]) for kind in kinds)

    def device(self, node: int) -> Path:
        """Return the folder that is a node's device."""
        return self._devices(node) / "d"

    def empty_disk(self, node: int, *, databases: bool = False) -> None:
        """Take all objects away from a node's device, as if its disk had been replaced; databases stay, or don't."""
        for kind in ("objects", "containers", "accounts") if databases else ("objects",):
            shutil.rmtree(self.device(node) / kind, ignore_errors=True)

    def stop(self) -> None:
        """Stop all processes of the store."""
        for node in list(self._replicators):
            self.stop_replicator(node)
        self._processes.stop()

    @property
    def pids(self) -> list[int]:
        """Return all processes that were started, without their children."""
        return self._processes.pids

    def cpu_s(self) -> float:
        """Processor time of all that runs."""
        return self._processes.cpu_s() + sum(one.cpu_s() for one in self._replicators.values())

    def once(self, node: int, program: str) -> list[str]:
        """Return the command of a pass of one of the background daemons of a node's object server."""
        return self._command("daemon", program, str(self._etc / f"object-{node}.conf"), "--once")

    def passes(self, kinds: Iterable[str] = tuple(KINDS)) -> bool:
        """Let all nodes do a pass of these replicators at the same time; return whether anything moved, or failed."""
        commands = []
        for kind in kinds:
            program = f"swift-{kind}-replicator"
            for node in range(self.nodes):
                conf = str(self._etc / f"{kind}-{node}.conf")
                commands.append(self._command("daemon", program, conf, "--once", "--verbose"))
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for command in commands
        ]
        several = [one.communicate(timeout=_END_WITHIN_S)[0] for one in running]
        for command, process, said in zip(commands, running, several, strict=True):
            if process.returncode:
                raise RuntimeError(f"{command[4]} ended with {process.returncode}: {said[-3000:]}")
        return any(_moved(said) or _moved_rows(said) or _failed(said) for said in several)

    # -- rounds ----------------------------------------------------------------------------------------------

    def start_replicator(self, node: int) -> None:
        """Start `swift-object-replicator` on a node, which begins a pass every thirty seconds, as it comes."""
        replicators = self._replicators[node] = Processes(self._said(node))
        conf = str(self._etc / f"object-{node}.conf")
        replicators.start("replicator", self._command("daemon", "swift-object-replicator", conf, "--verbose"))

    def stop_replicator(self, node: int) -> None:
        self._replicators.pop(node).stop()

    def _said(self, node: int) -> Path:
        return self._directory / f"replicator-{node}.log"

    def ended(self, node: int) -> Ended:
        """Return what the replicator of a node says of its last pass."""
        self._replicators[node].alive()
        passes = self._said(node).read_text(errors="replace").split(_COMPLETE)[:-1]
        if not passes:
            return Ended(0)
        return Ended(len(passes), _round_s(passes[-1]), _moved(passes[-1]), _failed(passes[-1]))

    def one_pass(self, node: int, wire: Wire) -> Pass:
        """`swift-object-replicator --once` on a node."""
        command = [*self.once(node, "swift-object-replicator"), "--verbose"]
        wire.take()
        cpu_s, own_s, began = self.cpu_s(), children_cpu_s(), time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        cpu_s = self.cpu_s() - cpu_s + children_cpu_s() - own_s
        said = done.stdout + done.stderr
        if done.returncode or _COMPLETE not in said:
            raise RuntimeError(f"object-replicator ended with {done.returncode}: {said[-3000:]}")
        traffic = wire.take()
        local = traffic.pop(node)
        traffic_of_others = sum(traffic, Traffic(0, 0))
        return Pass(traffic_of_others, local, seconds, _round_s(said), cpu_s, _moved(said), _failed(said))


def _failed(said: str) -> int:
    """Comparisons that failed, by a replicator's last line of statistics."""
    found = re.findall(r"(\d+) successes, (\d+) failures", said)
    return sum(int(failures) for _, failures in found[-1:])


def _moved_rows(said: str) -> int:
    """Databases of which a replicator sent rows, or all, by its last line of statistics."""
    found = re.findall(r"\b(?:diff|remote_merge|rsync|ts_repl):(\d+)", said)
    return sum(map(int, found))


def _round_s(said: str) -> float:
    """Seconds by the replicator's last line of statistics."""
    found = re.findall(r"partitions replicated in ([0-9.]+)s", said)
    return float(found[-1]) if found else 0.0


def _moved(said: str) -> int:
    """Suffixes that were sent to another node."""
    synced = re.findall(r"[0-9.]+% hashed, [0-9.]+% synced", said)
    counts = re.findall(r"(\d+) suffixes checked", said)
    if not (synced and counts):
        return 0
    share = re.search(r"([0-9.]+)% synced", synced[-1])
    return round(int(counts[-1]) * float(share[1]) / 100) if share else 0
