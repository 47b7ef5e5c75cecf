"""Objects of the whole cluster, as services use them: with runs, rows that are delivered, and metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.names import HashPath, Path
from swiftlet.placement.copies import WriteQuorums, majority
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.hedges import Hedges
from swiftlet.placement.metrics import HEDGED_READS, NEWEST_READS
from swiftlet.placement.missed import Missed
from swiftlet.placement.objects import ReplicatedObjects
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.row_updates import RowRouter, StoredRows
from swiftlet.placement.runs import ClusterRuns
from swiftlet.placement.write_plan import slots_of


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
        quorums: WriteQuorums = majority,
    ) -> None:
        """`missed.run` has to run beside this, so that devices are told what they missed."""
        self.missed = Missed(transport, health)
        waits_s = post_quorum_wait_s, write_timeout_s
        where = place, quorums
        super().__init__(
            rings,
            transport,
            rows,
            hash_path,
            health,
            self.missed,
            *waits_s,
            *where,
            compared=NEWEST_READS.inc,
            hedges=Hedges(HEDGED_READS.inc),
        )
        self._router = rows
        self.runs = ClusterRuns(rings, transport, health, self.is_suppressed, place)

    def shares(self, path: Path, policy: int) -> tuple[Sequence[tuple[int, ...]], Collection[int]]:
        """Return the container replicas that each copy of an object has to update, where all copies are made at once,
        and those that the write waits for. Raises Unavailable without a ring.
        """
        slots = slots_of(self._rings.objects(policy), self.quorums(policy), self.place)
        return self._router.shares(path, policy, slots)

    async def list_stored(self, stored: StoredRows) -> bool:
        """Bring the pending rows of objects that all their devices have stored; return whether their container is
        missing.
        """
        return await self._router.bring(stored)
