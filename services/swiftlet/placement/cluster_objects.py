"""Objects of the whole cluster, as services use them: with runs, rows that are delivered, and metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from swiftlet.boundaries.coded import CodedTransport
from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import NotSupported
from swiftlet.model import ObjectInfo, PostRecord, PutFooter, PutRecord
from swiftlet.names import HashPath, Path
from swiftlet.placement.coded import CodedObjects, Codings, PackBelow, none_small, of_copies
from swiftlet.placement.copies import WriteQuorums, majority
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.hedges import Hedges
from swiftlet.placement.metrics import HEDGED_READS, NEWEST_READS
from swiftlet.placement.missed import Missed
from swiftlet.placement.objects import ReplicatedObjects
from swiftlet.placement.outcomes import Written
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.row_updates import RowRouter, StoredRows
from swiftlet.placement.runs import ClusterRuns
from swiftlet.placement.transfers import Download, Upload
from swiftlet.placement.write_plan import slots_of
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp


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
        coded: CodedTransport | None = None,
        codings: Codings = of_copies,
        pack_below: PackBelow = none_small,
    ) -> None:
        """`missed.run` has to run beside this, so that devices are told what they missed.

        Objects of policies with `codings` go over `coded`, which has to be there for them; those of up to `pack_below`
        bytes are written as copies.
        """
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
        self.codings = codings
        self.pack_below = pack_below
        self._with_coding: CodedObjects | None = None
        if coded is not None:
            hedged = HEDGED_READS.inc
            parts = rings, coded, rows, hash_path, health, codings, place, pack_below
            self._with_coding = CodedObjects(*parts, hedged=hedged)
        self.runs = ClusterRuns(
            rings, transport, health, self.is_suppressed, place, lambda policy: self.is_coded(policy)
        )

    def is_coded(self, policy: int) -> bool:
        """Return whether the policy's objects have erasure coding."""
        return self.codings(policy) is not None

    def is_avoided(self, device: Device) -> bool:
        """Return whether others are asked before a device for coded objects: it failed lately, or has missed writes."""
        return self._health.suppressed(device) or device.id in self._health.behind()

    def _coded(self, policy: int) -> CodedObjects | None:
        """Return those who have the policy's objects if these have erasure coding."""
        if not self.is_coded(policy):
            return None
        if self._with_coding is None:
            raise NotSupported("this service can't read or write objects with erasure coding")
        return self._with_coding

    async def put(self, path: Path, policy: int, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        """Store a small object. Raises Superseded and Unavailable."""
        if (coded := self._coded(policy)) is not None:
            return await coded.put(path, policy, record, body, footer)
        return await super().put(path, policy, record, body, footer)

    async def upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object. Raises Superseded and Unavailable."""
        if (coded := self._coded(policy)) is not None:
            return await coded.upload(path, policy, record, size)
        return await super().upload(path, policy, record, size)

    async def begin_upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object, whose first bytes go to devices before these have agreed to take it."""
        if (coded := self._coded(policy)) is not None:
            return await coded.upload(path, policy, record, size)
        return await super().begin_upload(path, policy, record, size)

    async def post(self, path: Path, policy: int, record: PostRecord) -> Written:
        """Replace metadata. Raises NotFound, Superseded and Unavailable."""
        if (coded := self._coded(policy)) is not None:
            return await coded.post(path, policy, record)
        return await super().post(path, policy, record)

    async def delete(self, path: Path, policy: int, timestamp: Timestamp) -> Written:
        """Delete an object. Raises Superseded and Unavailable."""
        if (coded := self._coded(policy)) is not None:
            return await coded.delete(path, policy, timestamp)
        return await super().delete(path, policy, timestamp)

    async def head(self, path: Path, policy: int, newest: bool = False) -> ObjectInfo:
        """Return the description of an object; of coded ones always the newest version's. Raises NotFound and
        Unavailable.
        """
        if (coded := self._coded(policy)) is not None:
            return await coded.head(path, policy)
        return await super().head(path, policy, newest)

    async def get(
        self,
        path: Path,
        policy: int,
        start: int = 0,
        stop: int | None = None,
        newest: bool = False,
        version: Timestamp | None = None,
    ) -> Download:
        """Open bytes `[start, stop)` of an object; of coded ones always the newest version's. Raises NotFound and
        Unavailable.
        """
        if (coded := self._coded(policy)) is not None:
            return await coded.get(path, policy, start, stop, version)
        return await super().get(path, policy, start, stop, newest, version)

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
