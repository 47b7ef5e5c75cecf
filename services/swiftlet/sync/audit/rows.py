"""From rows to objects: every live row of the databases on this replicator's devices is proved.

Each primary of a container's database has its own replica walked, page by page, so that a row that is wrong on one
replica alone is found. A database that has not changed since all of it was proved is left alone for `proved_for_s`.
What is wrong is corrected on all replicas.

Fault model: servers may be down or slow: what can't be decided is counted, and its database is walked again in the next
pass. Rows may change while they are looked at: rows younger than `min_age_s` are left alone, and rows newer than the
one that was read win over what the audit writes. The process may be killed at any point: it keeps nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from swiftlet.boundaries.listing_sync import ListingSyncTransport
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.listing.sethash import NOT_A_DIGEST
from swiftlet.listing.shards import SHARD, is_shard
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.audit.looking import Objects
from swiftlet.sync.audit.metrics import LOOKED_AT, MENDED, PASS_S, UNDECIDED, WRONG
from swiftlet.sync.audit.moves import InForce, always, move_of
from swiftlet.sync.audit.pace import AuditSettings, Pacer
from swiftlet.sync.audit.verdict import Merge, NoRepair, Replace, newest
from swiftlet.sync.databases.exchange import first_point
from swiftlet.timestamp import ZERO
from swiftlet.web.logs import get_logger

_KNOWN = 100_000
"""The number of databases that are remembered as proved."""
_log = get_logger("listing-audit")


class RowsAudit:
    """Compares the rows of the databases on some devices with the objects; runs in one event loop."""

    def __init__(
        self,
        transport: ListingSyncTransport,
        objects: Objects,
        own: Callable[[Ring], Sequence[Device]],
        ring: Callable[[], Ring],
        hash_path: HashPath,
        settings: AuditSettings | None = None,
        now_s: Callable[[], float] = time.time,
        in_force: InForce = always,
    ) -> None:
        """`own` selects the devices of a ring to walk; `ring` returns the containers' ring, or raises Unavailable.

        `in_force` returns a container's move if both its policies may have objects.
        """
        self._in_force = in_force
        self._transport = transport
        self._objects = objects
        self._own = own
        self._ring = ring
        self._hash_path = hash_path
        self._settings = settings or AuditSettings()
        self._now_s = now_s
        self._proved: OrderedDict[tuple[int, DatabaseId], tuple[bytes, float]] = OrderedDict()
        self._found = 0
        self._pacer = Pacer(self._settings)

    async def run_once(self) -> int:
        """Do one pass over all databases; return the number of wrong rows. Raises Unavailable without a ring."""
        self._found = 0
        self._pacer.begin()
        whole = True
        for device in self._own(self._ring()):
            try:
                whole = await self._device(device) and whole
            except SwiftletError as error:
                whole = False
                _log.info("the listings of a device can't be audited now", device=device.name, error=str(error))
        if whole:
            PASS_S.labels("rows").set(self._now_s())
        return self._found

    async def _device(self, device: Device) -> bool:
        after: DatabaseId | None = None
        more, whole = True, True
        while more:
            ids, more = await self._transport.databases(device, DatabaseKind.CONTAINER, after)
            for id in ids:
                after = id
                if any(one.id == device.id for one in self._ring().primaries(id.partition)):
                    whole = await self._database(device, id) and whole
                    await self._pacer.rest()
            more = more and bool(ids)
        return whole

    async def _database(self, device: Device, id: DatabaseId) -> bool:
        """Prove one replica; return whether all of it could be read."""
        try:
            state = await self._transport.database_state(device, id)
            if self._is_left_alone(state) or self._is_proved(device, id, state):
                return True
            placed = await self._place(id, state.name)
            if placed is None:
                return True
            place, policy = placed
            if not await self._pages(device, id, state, place, policy):
                return True
        except SwiftletError as error:
            _log.info("a listing can't be audited now", database=str(id), error=str(error))
            return False
        self._proved[device.id, id] = state.rows_digest, self._now_s()
        self._proved.move_to_end((device.id, id))
        while len(self._proved) > _KNOWN:
            self._proved.popitem(last=False)
        return True

    @staticmethod
    def _is_left_alone(state: DatabaseState) -> bool:
        """Return whether there is nothing to prove: in deleted databases, and where rows stand for tasks of
        services.
        """
        return state.deleted or state.name.container is None or state.name.account.startswith(".")

    def _is_proved(self, device: Device, id: DatabaseId, state: DatabaseState) -> bool:
        digest, at_s = self._proved.get((device.id, id), (b"", 0.0))
        return digest == state.rows_digest and self._now_s() - at_s < self._settings.proved_for_s

    async def _place(self, id: DatabaseId, name: DatabaseName) -> tuple[DatabaseName, int] | None:
        """Return the container that lists a database's rows, and the policy of its objects. Raises Unavailable.

        It is None for one that moves to another policy: an object that no device of one policy has is in the other.

        All replicas have to agree: one that has missed that its container was deleted and created again in another
        policy would look for its objects in the wrong ring, and find none.
        """
        if is_shard(name):
            name = _listed(name)
            digest = self._hash_path(name.account, name.container)
            id = DatabaseId(DatabaseKind.CONTAINER, self._ring().partition_of(digest), digest)
        states = [await self._transport.database_state(one, id) for one in self._ring().primaries(id.partition)]
        moves = [move_of(state) for state in states]
        if any(self._in_force(move) is not None for move in moves):
            return None
        policies = {state.policy if move is None else move.policy for state, move in zip(states, moves, strict=True)}
        if len(policies) > 1 or any(state.deleted or state.put_timestamp == ZERO for state in states):
            raise Unavailable(f"the replicas of {name} do not agree about its state")
        return name, policies.pop()

    async def _pages(
        self, device: Device, id: DatabaseId, state: DatabaseState, place: DatabaseName, policy: int
    ) -> bool:
        """Check all pages that belong to this database; return whether every row was old enough and right."""
        after, end, proved = "", first_point(state), True
        while True:
            page = await self._transport.compare_rows(device, id, after, end, NOT_A_DIGEST)
            if page is None:
                return proved
            rows = [row for row in page.rows if isinstance(row, ObjectRow) and not row.deleted]
            proved = await self._page(id, state.name, Path(place.account, place.container), policy, rows) and proved
            if page.upto in (end, after):
                return proved
            after = page.upto

    async def _page(
        self, id: DatabaseId, name: DatabaseName, place: Path, policy: int, rows: Sequence[ObjectRow]
    ) -> bool:
        horizon = self._now_s() - self._settings.min_age_s
        old = [row for row in rows if newest(row).seconds <= horizon]
        verdicts = await asyncio.gather(
            *(self._objects.judge(Path(place.account, place.container, row.name), policy, row) for row in old)
        )
        LOOKED_AT.labels("rows").inc(len(old))
        merges: list[Merge] = []
        replaces: list[Replace] = []
        undecided = 0
        for row, (verdict, looked) in zip(old, verdicts, strict=True):
            if verdict is NoRepair.UNDECIDED:
                undecided += 1
            elif isinstance(verdict, Merge | Replace):
                if newest(row, looked.truth).seconds > horizon:
                    undecided += 1
                elif isinstance(verdict, Merge):
                    merges.append(verdict)
                else:
                    replaces.append(verdict)
        UNDECIDED.inc(undecided)
        # Walks take long: the container may have begun to move since, and its objects with it.
        if (merges or replaces) and await self._place(id, name) != (
            DatabaseName(place.account, place.container),
            policy,
        ):
            UNDECIDED.inc(len(merges) + len(replaces))
            await self._pacer.rest(len(old))
            return False
        await self._mend(id, name, merges, replaces)
        await self._pacer.rest(len(old))
        return len(old) == len(rows) and not undecided and not merges and not replaces

    async def _mend(
        self, id: DatabaseId, name: DatabaseName, merges: Sequence[Merge], replaces: Sequence[Replace]
    ) -> None:
        """Correct rows on all replicas; those that can't be reached are corrected by their own walk."""
        wrong: list[Merge | Replace] = [*merges, *replaces]
        if not wrong:
            return
        self._found += len(wrong)
        for one in wrong:
            WRONG.labels(one.wrong.value).inc()
            _log.warning(
                "the audit found a listing that does not match the objects",
                container=str(name),
                object=one.row.name,
                kind=one.wrong.value,
            )
        reached = 0
        for holder in self._ring().primaries(id.partition):
            try:
                if merges:
                    await self._transport.merge_rows(holder, id, name, [merge.row for merge in merges])
                if replaces:
                    changes = [(replace.seen, replace.row) for replace in replaces]
                    await self._transport.replace_rows(holder, id, changes)
                reached += 1
            except SwiftletError as error:
                _log.info("a replica of a container could not be corrected yet", device=holder.name, error=str(error))
        if reached:
            for one in wrong:
                MENDED.labels(one.wrong.value).inc()


def _listed(shard: DatabaseName) -> DatabaseName:
    """Return the container in which the rows of a shard are listed."""
    assert shard.container is not None
    return DatabaseName(shard.account, shard.container[len(SHARD) :].rpartition("\0")[0])
