"""Rounds of all nodes, one after the other: what each cost.

Sync delay is a round's wall time; processor time is the process's, so the answering servers' too; peak memory is what
the process grew by at most during a round, servers included. The bare transfer is what a round moved, moved once more:
the same copies are read and given to the same devices, which were made to forget them, and nothing is compared.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from bench.sync.cluster import KEY, Cluster, Node
from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.model import Entry, ObjectKey
from swiftlet.ring import Ring
from swiftlet.ring.model import Device
from swiftlet.store.protocol import Store
from swiftlet.sync.moving.copies_wire import copies_from
from swiftlet.sync.moving.mover import MOVES_PER_SLOT
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.replicator import Replicator
from swiftlet.sync.session.topology import ROUND_MODES
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_devices import HttpDevices

PATIENT = HttpSettings(connect_timeout_s=20.0, answer_timeout_s=600.0)
"""A busy machine is no failed node: one that is down refuses connections at once."""


@dataclass(frozen=True)
class Measured:
    """Means over the nodes that did a round; totals where they say so."""

    mode: str
    replicas: int
    objects: int
    scenario: str
    delay_s: float
    kilobytes: float
    """Between a node and the others, HTTP headers included."""
    tcp_kilobytes: float
    """With IP and TCP headers, estimated."""
    messages: float
    local_kilobytes: float
    cpu_s: float
    peak_mb: float
    moved: int
    """Objects, all nodes together."""
    left: int
    """Comparisons that failed or were left out, all nodes together."""
    rounds: int = 1
    """Rounds until nothing moved any more; only the first is measured."""
    lacking_kilobytes: float = 0.0
    """All nodes together: the bytes of the objects' data that somebody lacked."""

    working: int = 0
    """Nodes that did a round."""
    bare_s: float = 0.0
    """The transfer alone of what a round moved; 0 where it was not measured."""
    stable_s: float = 0.0
    """The delay of a round just before anything changed; 0 where it was not measured."""

    @property
    def times_lacking(self) -> float | None:
        """Bytes on the wire as a multiple of what was lacking."""
        total = self.kilobytes * self.working
        return total / self.lacking_kilobytes if self.lacking_kilobytes else None

    def json(self) -> dict[str, object]:
        """For the file of results."""
        return asdict(self)


class Recording(HttpDevices):
    """Remembers the copies that were read and given.

    The list of a device's partitions, and what is forgotten on it, go to the store without a server between: they go
    over the native transport, which the relays do not count.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(NodeClient(PATIENT, key=KEY))
        self._cluster = cluster
        self.read: list[tuple[Device, bytes]] = []
        self.given: list[tuple[Device, bytes]] = []

    def _store(self, device: Device) -> Store:
        return self._cluster.by_device[device.id].store

    async def policies(self, device: Device) -> list[int]:
        """Storage policies with anything on the device."""
        return self._store(device).policies()

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Partitions with anything in them on the device."""
        return self._store(device).partitions(policy)

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Set hash per suffix."""
        return self._store(device).suffix_hashes(policy, partition)

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy."""
        return self._store(device).remove(key, entry)

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Note what is asked of which device, then ask."""
        self.read.append((device, wanted))
        return await super().read_copies(device, wanted)

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Note what is given to which device, then give it."""
        self.given.append((device, copies))
        return await super().take_copies(device, copies)


@dataclass(frozen=True)
class Subject:
    """What is measured: a cluster in a mode; at most `most` nodes do measured rounds (all of them with 0)."""

    cluster: Cluster
    mode: str
    replicas: int
    objects: int
    most: int = 0
    nice: int = 0
    """Niceness of this process while a round is measured; below 0, what else runs on the machine has to wait."""
    kept: dict[int, tuple[Recording, Replicator]] | None = None
    """The replicators by device, where they are kept from round to round; else each round has a new one."""

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Subject]:
        """The same with replicators that have done a round, so that their streams are open, as in services."""
        kept = replace(self, kept={})
        try:
            for node in kept.nodes():
                await kept.round(node, kept.transport(node))
            yield kept
        finally:
            for transport, _ in (kept.kept or {}).values():
                await transport.close()

    def transport(self, node: Node) -> Recording:
        """Return what a node's round goes over."""
        if self.kept is None:
            return Recording(self.cluster)
        if node.device.id not in self.kept:
            transport = Recording(self.cluster)
            self.kept[node.device.id] = transport, self._replicator(node, transport)
        return self.kept[node.device.id][0]

    def nodes(self, away: Node | None = None) -> list[Node]:
        """Return the nodes that run rounds."""
        found = [node for node in self.cluster.nodes if node is not away]
        return found[: self.most] if self.most else found

    async def measure(
        self,
        scenario: str,
        away: Node | None = None,
        lacking: int = 0,
        rounds: int = 1,
        first: Node | None = None,
        bare: bool = False,
        stable_s: float = 0.0,
    ) -> Measured:
        """One measured round of each node, then further ones until nothing moves, up to `rounds` in all.

        `bare`: what was moved is moved once more alone. `stable_s` goes into the figures.
        """
        nodes = self.nodes(away)
        bare_s: list[float] = []
        if first is not None:
            nodes = [*(node for node in nodes if node is not first), first]
        costs = []
        for node in nodes:
            transport = self.transport(node)
            costs.append(await self._one(node, transport))
            if bare:
                bare_s.append(await self._bare(transport))
        number = 1
        while number < rounds and await self._settle(nodes):
            number += 1
        columns = zip(*(cost for cost, _ in costs), strict=True)
        delay_s, kilobytes, tcp_kilobytes, messages, local_kilobytes, cpu_s, peak_mb = map(statistics.mean, columns)
        return Measured(
            self.mode,
            self.replicas,
            self.objects,
            scenario,
            delay_s,
            kilobytes,
            tcp_kilobytes,
            messages,
            local_kilobytes,
            cpu_s,
            peak_mb,
            moved=sum(report.pushed + report.pulled for _, report in costs),
            left=sum(report.failed + report.skipped for _, report in costs),
            rounds=number,
            lacking_kilobytes=lacking / 1000,
            working=len(nodes),
            bare_s=statistics.mean(bare_s) if bare_s else 0.0,
            stable_s=stable_s,
        )

    async def _settle(self, nodes: list[Node]) -> bool:
        """A round that is not measured; whether anything moved."""
        reports = [await self.round(node, self.transport(node)) for node in nodes]
        return any(report.pushed + report.pulled for report in reports)

    async def _bare(self, made: Recording) -> float:
        """Seconds that it takes to move once more what a round has moved."""
        for device, copies in made.given:
            for copy in copies_from(copies):
                self.cluster.forget(device, copy.key)
        transport = Recording(self.cluster)
        steps = [(transport.read_copies, one) for one in made.read] + [
            (transport.take_copies, one) for one in made.given
        ]
        waiting = iter(steps)

        async def carry() -> None:
            for call, (device, message) in waiting:
                await call(device, message)

        gc.collect()
        _set_nice(self.nice)
        began = time.monotonic()
        await asyncio.gather(*(carry() for _ in range(MOVES_PER_SLOT)))
        took_s = time.monotonic() - began
        _set_nice(0)
        await transport.close()
        return took_s

    async def round(self, node: Node, transport: Recording) -> RoundReport:
        """One, by a replicator that knows of no failures yet unless replicators are kept."""
        if self.kept is not None:
            return await self.kept[node.device.id][1].run_round([0])
        try:
            return await self._replicator(node, transport).run_round([0])
        finally:
            await transport.close()

    def _replicator(self, node: Node, transport: Recording) -> Replicator:
        def local(_ring: Ring) -> list[Device]:
            return [node.device]

        return Replicator(
            local, lambda policy: self.cluster.ring, cast("ObjectTransport", transport), mode=ROUND_MODES[self.mode]
        )

    async def _one(self, node: Node, transport: Recording) -> tuple[tuple[float, ...], RoundReport]:
        others = [other.relay for other in self.cluster.nodes if other is not node]
        for relay in (*others, node.relay):
            relay.reset()
        gc.collect()
        reset_peak()
        _set_nice(self.nice)
        memory, cpu_s, began = memory_mb("VmRSS"), processor_s(), time.monotonic()
        report = await self.round(node, transport)
        delay_s = time.monotonic() - began
        _set_nice(0)
        cost = (
            delay_s,
            sum(relay.bytes for relay in others) / 1000,
            sum(relay.tcp_bytes for relay in others) / 1000,
            float(sum(relay.messages for relay in others)),
            node.relay.bytes / 1000,
            processor_s() - cpu_s,
            max(0.0, memory_mb("VmHWM") - memory),
        )
        return cost, report


async def warm_up(cluster: Cluster) -> None:
    """A round of each node that is not measured: whatever the first one has to make is made."""
    subject = Subject(cluster, "batched", 0, 0)
    for node in cluster.nodes:
        await subject.round(node, Recording(cluster))


def _set_nice(value: int) -> None:
    """Set the nice level of this process: of each thread and, where Linux shares processors among sessions, of its
    session.
    """
    for thread in Path("/proc/self/task").iterdir():
        # A thread may end in the meantime.
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), value)
    session = Path("/proc/self/autogroup")
    # The file is empty where the session has no group of its own, as under some container runtimes: then there is none.
    if session.exists() and session.read_text():
        session.write_text(f"{value}\n")


def processor_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def reset_peak() -> None:
    """Reset the kernel's count of this process's peak memory."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_mb(name: str) -> float:
    """Megabytes, by the kernel."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1000
    raise ValueError(f"the kernel does not tell {name}")
