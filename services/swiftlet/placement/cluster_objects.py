"""Objects of the whole cluster, as services use them: with runs, rows that are delivered, and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.model import ObjectKey
from swiftlet.names import HashPath, Path
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.metrics import NEWEST_READS
from swiftlet.placement.missed import Missed
from swiftlet.placement.objects import Bound, ReplicatedObjects
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.row_updates import RowRouter, StoredRows
from swiftlet.placement.runs import ClusterRuns
from swiftlet.ring.model import Device

T = TypeVar("T")


class ClusterObjects(ReplicatedObjects):
    """The objects of all policies, as a member of the cluster reads and writes them."""

    def __init__(
        self,
        rings: Rings,
        transport: ObjectTransport,
        rows: RowRouter,
        hash_path: HashPath,
        health: NodeHealth,
        post_quorum_wait_s: float = 0.5,
        write_timeout_s: float = 10.0,
        place: Place = ANYWHERE,
    ) -> None:
        """`missed.run` has to run beside this, so that devices are told what they missed."""
        self.missed = Missed(transport, health)
        waits_s = post_quorum_wait_s, write_timeout_s
        super().__init__(rings, transport, rows, hash_path, health, self.missed, *waits_s, place)
        self._router = rows
        self.runs = ClusterRuns(rings, transport, health, self.is_suppressed, place)

    async def list_stored(self, stored: StoredRows) -> bool:
        """Bring the pending rows of objects that all their devices have stored; return whether their container is
        missing.
        """
        return await self._router.bring(stored)

    async def _newest_copy(
        self, path: Path, key: ObjectKey, operation: Callable[[Device, bool], Awaitable[T]], bound: Bound
    ) -> T:
        NEWEST_READS.inc()
        return await super()._newest_copy(path, key, operation, bound)
