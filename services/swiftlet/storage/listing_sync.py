"""Anti-entropy for account and container databases: replicas compare a few bytes and exchange what one lacks.

A round asks each peer, in one message, which of the databases that it should share with us it holds with another
fingerprint. For each of those, states (timestamps, metadata) are exchanged and then the rows, in pages by name:
a page goes as its set hash, and only where that differs as rows, both ways. A database that a peer lacks is made
there. Everything merges newest-wins, so rounds may overlap, repeat and stop anywhere.

A device that holds a database as a handoff gives it to all primaries, takes nothing back, and forgets its copy
once all of them have confirmed every page, unless it changed meanwhile.

A container that is being written to differs between replicas at most moments though nothing is wrong. It is left
alone while it keeps changing, for up to `patience_s`. A page costs reading its rows on both sides even if they are
equal, so one lost row in a container of millions costs a scan of it: what took long with a peer then rests with
that peer in proportion (`effort`).

What a round finds out about each device is its standing (`swiftlet.storage.listing_standing`). What a peer has and we
lack altogether comes in the peer's rounds; ours asks for it, to know that it is lacking.

Fault model: a peer may go away at any point: its databases wait for the next round, other peers' go on. A damaged
database goes to quarantine when it is met and then comes back from a peer's round.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from prometheus_client import Counter, Histogram

from swiftlet.errors import NodeError, NotFound, StoreFormatError, SwiftletError, Unavailable
from swiftlet.listing import replica, sethash
from swiftlet.listing.database import POINT
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.shards import SHARD
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseState
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.storage.listing_census import CensusTaker
from swiftlet.storage.listing_standing import ListingStanding
from swiftlet.storage.local_devices import CurrentRing, IsLocal, holders_of, own_index
from swiftlet.transport.listing_sync import ListingSyncTransport
from swiftlet.web.logs import get_logger

ROUNDS = Histogram("swiftlet_listing_sync_round_duration_seconds", "Time that a round over all databases took.")
DATABASES = Counter(
    "swiftlet_listing_sync_databases_total", "Databases that differed from a peer's, by what came of it.", ["result"]
)
ROWS = Counter("swiftlet_listing_sync_rows_total", "Rows that sync brought.", ["direction"])
MAX_ASKED = 2000
"""Databases in one question to a peer."""
RING_NAMES = {DatabaseKind.ACCOUNT: "account", DatabaseKind.CONTAINER: "container"}
"""What the rings of databases are called."""
_FIRST_S = 1.0
"""The first round begins within this time."""
_log = get_logger("listing_sync")


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """How often and how hard replicas compare."""

    interval_s: float = 5.0
    """Seconds between rounds, give or take a quarter."""
    concurrency: int = 4
    """Databases that are completed at a time."""
    patience_s: float = 30.0
    """Seconds for which a database that keeps changing is left alone."""
    effort: float = 0.05
    """Largest share of the time that goes into one database with one peer, above 0 and up to 1."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """One of our databases, as it stood when the round began."""

    device: str
    id: DatabaseId
    fingerprint: bytes
    handoff: bool


class _Outcome(IntEnum):
    """How one of our databases stands to one peer's, from good to bad."""

    AGREES = 0
    POSTPONED = 1
    """It differs, and is left alone for now."""
    FAILED = 2
    """It differs, and could not be completed."""
    UNASKED = 3
    """The peer could not be asked."""


class ListingSync:
    """Keeps this server's listing databases equal to their replicas. Lives in one event loop."""

    def __init__(
        self,
        stores: Mapping[str, ListingStore],
        account_ring: CurrentRing,
        container_ring: CurrentRing,
        transport: ListingSyncTransport,
        is_local: IsLocal,
        settings: SyncSettings | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`stores` by the devices' names on this server; `now_s` is the wall clock."""
        self._stores = stores
        self._rings = {DatabaseKind.ACCOUNT: account_ring, DatabaseKind.CONTAINER: container_ring}
        self._transport = transport
        self._is_local = is_local
        self._settings = settings or SyncSettings()
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._restless: dict[tuple[str, DatabaseId], tuple[bytes, float]] = {}
        self._verdicts: dict[_Copy, bool] = {}
        self._resting: dict[tuple[Device, str, DatabaseId], float] = {}
        self._now_s = now_s
        self._census = CensusTaker(transport, is_local)
        self._standings: dict[tuple[str, DatabaseKind], ListingStanding] = {}

    def report(self, device: str) -> dict[str, object]:
        """How a device stands in the rings in which it has been compared, for the status report."""
        kinds = (kind for kind in self._rings if (device, kind) in self._standings)
        return {RING_NAMES[kind]: self._standings[device, kind].fields() for kind in kinds}

    async def run(self) -> None:
        """Rounds until cancelled, the first one soon."""
        await asyncio.sleep(min(_FIRST_S, self._settings.interval_s) * random.random())  # noqa: S311
        while True:
            try:
                with ROUNDS.time():
                    await self.run_once(patient=True)
            except SwiftletError as error:
                _log.warning("a round of listing sync ended early", error=str(error))
            await asyncio.sleep(self._settings.interval_s * random.uniform(0.75, 1.25))  # noqa: S311

    async def run_once(self, patient: bool = False) -> int:
        """One round; how many (database, peer) pairs could not be brought into agreement."""
        began_s = self._now_s()
        self._verdicts = {}
        rings = self._current_rings()
        work: dict[Device, list[_Copy]] = defaultdict(list)
        outcomes: dict[_Copy, list[_Outcome]] = {}
        damaged: dict[tuple[str, DatabaseKind], list[DatabaseId]] = {}
        for device in self._stores:
            for kind, ring in rings.items():
                found = await self._list(device, kind, ring, work, outcomes)
                if found is not None:
                    damaged[device, kind] = found
                elif (device, kind) in self._standings:
                    self._standings[device, kind].unreadable(ring.partition_count)
        await asyncio.gather(*(self._with_peer(peer, copies, patient, outcomes) for peer, copies in work.items()))
        self._forget_rest()
        for copy, results in outcomes.items():
            if copy.handoff and results and max(results) is _Outcome.AGREES:
                await self._send_home(copy)
        for (device, kind), ids in damaged.items():
            ours = {
                copy: results for copy, results in outcomes.items() if copy.device == device and copy.id.kind is kind
            }
            await self._judge(device, kind, rings[kind], began_s, ours, ids)
        return sum(outcome is not _Outcome.AGREES for results in outcomes.values() for outcome in results)

    def _current_rings(self) -> dict[DatabaseKind, Ring]:
        """The rings that are loaded."""
        rings = {}
        for kind, ring in self._rings.items():
            try:
                rings[kind] = ring()
            except Unavailable as error:
                _log.info("a kind of databases is put off", kind=kind.value, reason=str(error))
        return rings

    async def _list(
        self,
        device: str,
        kind: DatabaseKind,
        ring: Ring,
        work: dict[Device, list[_Copy]],
        outcomes: dict[_Copy, list[_Outcome]],
    ) -> list[DatabaseId] | None:
        """Note a device's databases and whom to compare them with; those that can't be read, None if none can."""
        store, damaged = self._stores[device], []
        try:
            for partition in await store.partitions(kind):
                holders = holders_of(ring, partition)
                own = own_index(holders, device, self._is_local)
                peers = [holder for index, holder in enumerate(holders) if index != own]
                for id in await store.databases(kind, partition):
                    try:
                        fingerprint = await store.fingerprint(id)
                    except (NotFound, StoreFormatError) as error:
                        damaged.append(id)
                        _log.warning("a database can't be compared", database=str(id), error=str(error))
                        continue
                    copy = _Copy(device, id, fingerprint, own is None)
                    outcomes[copy] = []
                    for peer in peers:
                        work[peer].append(copy)
        except SwiftletError as error:
            _log.warning("a device can't be compared", device=device, error=str(error))
            return None
        return damaged

    async def _judge(
        self,
        device: str,
        kind: DatabaseKind,
        ring: Ring,
        began_s: float,
        outcomes: Mapping[_Copy, list[_Outcome]],
        damaged: list[DatabaseId],
    ) -> None:
        """What the round means for one device: how it stands now."""
        census = await self._census.take(device, kind, ring, {copy.id for copy in outcomes}.union(damaged))
        store = self._stores[device]
        worst: dict[_Outcome, list[DatabaseId]] = {outcome: [] for outcome in _Outcome}
        for copy, found in outcomes.items():
            worst[max(found, default=_Outcome.AGREES)].append(copy.id)
        try:
            left = [id for p in await store.partitions(kind) for id in await store.databases(kind, p)]
        except SwiftletError as error:
            _log.warning("a device can't be compared", device=device, error=str(error))
            return
        self._standings.setdefault((device, kind), ListingStanding()).end(
            ring,
            began_s,
            agreed=worst[_Outcome.AGREES],
            postponed=worst[_Outcome.POSTPONED],
            failed=worst[_Outcome.FAILED],
            missing=census.missing,
            unchecked=census.unchecked.union(id.partition for id in (*worst[_Outcome.UNASKED], *damaged)),
            held=len(left),
            misplaced=self._misplaced(device, ring, left),
        )

    def _misplaced(self, device: str, ring: Ring, ids: Iterable[DatabaseId]) -> int:
        return sum(own_index(holders_of(ring, id.partition), device, self._is_local) is None for id in ids)

    async def _with_peer(
        self, peer: Device, copies: list[_Copy], patient: bool, outcomes: Mapping[_Copy, list[_Outcome]]
    ) -> None:
        """Compare these with one peer's and complete both."""
        for start in range(0, len(copies), MAX_ASKED):
            asked = copies[start : start + MAX_ASKED]
            try:
                differing = set(await self._transport.differing(peer, [(c.id, c.fingerprint) for c in asked]))
            except SwiftletError as error:
                _log.info("a peer can't be asked", peer=peer.name, error=str(error))
                for copy in copies[start:]:
                    outcomes[copy].append(_Outcome.UNASKED)
                return
            unequal = [copy for copy in asked if copy.id in differing]
            for copy in asked:
                if copy.id not in differing:
                    outcomes[copy].append(_Outcome.AGREES)
            results = await asyncio.gather(*(self._guarded(peer, copy, patient) for copy in unequal))
            for copy, outcome in zip(unequal, results, strict=True):
                outcomes[copy].append(outcome)

    async def _guarded(self, peer: Device, copy: _Copy, patient: bool) -> _Outcome:
        if patient and not copy.handoff and not (self._rested(peer, copy) and self._settled(copy)):
            DATABASES.labels("postponed").inc()
            return _Outcome.POSTPONED
        async with self._slots:
            begun = asyncio.get_running_loop().time()
            try:
                if not await self._complete(peer, copy):
                    DATABASES.labels("postponed").inc()
                    return _Outcome.POSTPONED
            except SwiftletError as error:
                DATABASES.labels("failed").inc()
                _log.info("a database could not be completed", peer=peer.name, database=str(copy.id), error=str(error))
                return _Outcome.FAILED
            finally:
                self._rest(peer, copy, begun)
        DATABASES.labels("completed").inc()
        return _Outcome.AGREES

    def _settled(self, copy: _Copy) -> bool:
        """Whether the database stood still since the last round, or was waited for long enough."""
        if copy not in self._verdicts:
            key, now = (copy.device, copy.id), asyncio.get_running_loop().time()
            seen, since = self._restless.get(key, (b"", now))
            settled = seen == copy.fingerprint or now - since >= self._settings.patience_s
            self._verdicts[copy] = settled
            if not settled:
                self._restless[key] = (copy.fingerprint, since)
        return self._verdicts[copy]

    def _rest(self, peer: Device, copy: _Copy, begun: float) -> None:
        now = asyncio.get_running_loop().time()
        pause_s = (now - begun) * (1 / self._settings.effort - 1)
        if pause_s > self._settings.interval_s:
            self._resting[peer, copy.device, copy.id] = now + pause_s

    def _rested(self, peer: Device, copy: _Copy) -> bool:
        return asyncio.get_running_loop().time() >= self._resting.get((peer, copy.device, copy.id), 0.0)

    def _forget_rest(self) -> None:
        """Keep in mind only who rests still, and what differed in this round and was left alone."""
        now = asyncio.get_running_loop().time()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        kept = {(copy.device, copy.id) for copy, settled in self._verdicts.items() if not settled}
        self._restless = {key: seen for key, seen in self._restless.items() if key in kept}

    async def _complete(self, peer: Device, copy: _Copy) -> bool:
        """Bring a peer's replica and ours into agreement (of a handoff: only the peer's); False: later.

        Rows above the first split point are on their way to a shard, each replica's own; a handoff stays until its are.
        Those of a shard's handoff nobody moves any more: they go to its primaries, and on from there.
        """
        store, id = self._stores[copy.device], copy.id
        ours = await replica.state_of(store, id)
        try:
            theirs = await self._transport.exchange_state(peer, id, ours)
        except NotFound:
            if copy.handoff and ours.deleted:
                return True  # Deleted so long ago that the peer has forgotten it: so may we.
            raise
        if not copy.handoff or _lacks_points(ours, theirs):
            ours = await replica.merge_state(store, id, theirs)
        if ours.rows_digest == theirs.rows_digest:
            return True
        end = "" if copy.handoff and (ours.name.container or "").startswith(SHARD) else first_point(ours)
        if copy.handoff and end and (await replica.rows_page(store, id, end, "")).rows:
            return False
        after = ""
        while True:
            upto = await self._complete_page(peer, copy, after, end)
            if upto == end:
                return True
            if upto <= after:
                raise NodeError(f"{peer.address} went backwards in {id}")
            after = upto

    async def _complete_page(self, peer: Device, copy: _Copy, after: str, end: str) -> str:
        """One page up to `end` both ways; the name that it reaches to, `end` at the end."""
        store, id = self._stores[copy.device], copy.id
        ours = await replica.rows_page(store, id, after, end)
        theirs = await self._transport.compare_rows(peer, id, after, ours.upto, sethash.of(ours.rows))
        if theirs is None:
            return ours.upto
        covered = [row for row in ours.rows if not theirs.upto or row.name <= theirs.upto]
        name = (await replica.state_of(store, id)).name
        wanted = [] if copy.handoff else replica.lacking(theirs.rows, covered)
        if wanted:
            await replica.merge_rows(store, id, name, wanted)
            ROWS.labels("received").inc(len(wanted))
        offered = replica.lacking(covered, theirs.rows)
        if offered:
            await self._transport.merge_rows(peer, id, name, offered)
            ROWS.labels("sent").inc(len(offered))
        return theirs.upto

    async def _send_home(self, copy: _Copy) -> None:
        """Forget a handoff copy that all primaries hold, unless it changed since."""
        try:
            if await self._stores[copy.device].remove(copy.id, copy.fingerprint):
                DATABASES.labels("sent-home").inc()
        except NotFound:
            return


def _lacks_points(ours: DatabaseState, theirs: DatabaseState) -> bool:
    """Whether a peer has split points that we do not know."""
    known = {item.name for item in ours.metadata}
    return any(item.name.startswith(POINT) and item.name not in known for item in theirs.metadata)


def first_point(state: DatabaseState) -> str:
    """Up to where replicas of a database have the same rows: its first split point; "" when it has none."""
    points = [item.name[len(POINT) :] for item in state.metadata if item.name.startswith(POINT)]
    return min(points, default="")
