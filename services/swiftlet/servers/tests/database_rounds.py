"""The rounds of one device's databases, as its replicator does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swiftlet.boundaries.listing_sync import ListingSyncTransport
from swiftlet.model import DatabaseKind
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.databases.entries import POLICIES, RINGS, ring_name
from swiftlet.sync.databases.patience import IMPATIENT, Limits, Patience
from swiftlet.sync.databases.replica_kind import database_replicas
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.replicator import Replicator, probe
from swiftlet.sync.session.topology import THOROUGH, Mode


class Rounds:
    """A replicator for one device, under rings that can be exchanged."""

    def __init__(
        self,
        transport: ListingSyncTransport,
        device: Device,
        ring: Callable[[], Ring],
        account_ring: Callable[[], Ring] | None = None,
        limits: Limits = IMPATIENT,
        mode: Mode = THOROUGH,
        now_s: Callable[[], float] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        rings = {DatabaseKind.CONTAINER: ring, DatabaseKind.ACCOUNT: account_ring or ring}
        patience = Patience(limits) if clock is None else Patience(limits, clock)

        def own(found: Ring) -> list[Device]:
            return [one for one in found.devices if one is not None and one.id == device.id]

        self.patience = patience
        replica_kind = database_replicas(transport, patience)
        self.neighbours = Neighbours(
            Observer(node_of(device), device.node),
            FailureTable(limit=3),
            lambda peer: probe(replica_kind.transport, peer),
            retry_s=0.01,
        )
        clocks: dict[str, Any] = {} if now_s is None else {"now_s": now_s}
        self.replicator = Replicator(
            own, lambda policy: rings[RINGS[policy]](), replica_kind, neighbours=self.neighbours, mode=mode, **clocks
        )
        self.last = RoundReport()

    async def run_once(self) -> int:
        """One round; how many comparisons came to nothing, or were left out."""
        self.last = await self.replicator.run_round(list(POLICIES.values()))
        return self.last.failed + self.last.skipped

    def report(self, device: Device) -> dict[str, Any]:
        """By ring, what the device says of itself."""
        found: Any = self.replicator.standings.report(ring_name)
        rings: dict[str, Any] = found.get(device.name, {"rings": {}})["rings"]
        return rings
