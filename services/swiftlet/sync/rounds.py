"""One round: who is compared with whom about what, in which order, and what the device's standing is by it.

Where the mode compares many partitions in one message, each peer is first asked for proofs about all partitions shared
with it. What is left is worked on in sessions of many partitions with one peer each. A partition is in one session at
a time, so that nothing is fetched twice: with the first peer it may get everything, and be found equal to the others.
What came from one peer is new to the others that were compared before: those are compared once more.

What comes next is said by `swiftlet.sync.agenda`.

Fault model: a session may fail for any reason, with anything done or not done. What it has not told of is tried again
in sessions of an eighth of the size, down to single partitions, which then count as failed: one partition that is in
trouble keeps no others back, and a node that is away has failed often enough on the way to be left out. What was left
out because of a node is taken up when it is back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

import structlog

from swiftlet.errors import NodeUnreachable, SwiftletError
from swiftlet.ring.model import Device
from swiftlet.sync.agenda import Agenda
from swiftlet.sync.books import NOT_DONE, Book, Found
from swiftlet.sync.cases import EVERYTHING, Errand, LeftOut, Proofs, Selection
from swiftlet.sync.course import Course, Outdated
from swiftlet.sync.driver import Driver
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.pacing import Pace
from swiftlet.sync.progress import Progress
from swiftlet.sync.report import PROVED, RoundReport
from swiftlet.sync.session.effects import Session, Terms
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.neighbour import differing_session, neighbour_session, proof_session
from swiftlet.sync.session.queue import Homeward, plan, unique
from swiftlet.sync.session.topology import THOROUGH, First, neighbours
from swiftlet.sync.share import Share

MANY = 1024
"""Partitions of a session whose messages are about many at a time."""
FEW = 64
"""Partitions that are compared at the same time, where messages are about one each, in sessions of their own."""
MAX_TRIES = 10
"""How often a peer that can't be reached is asked for proofs, while it is not left out: not for a few partitions."""
_LESS = 8
"""By how much sessions get smaller after a failure."""
_LOOK_S = 0.05
"""Seconds between looks whether load lets one more session begin; for so long small pieces are gathered."""

_log = structlog.get_logger("replicator")


class Round:
    """The work of one round, for all devices and policies."""

    def __init__(
        self,
        driver: Driver,
        terms: Callable[[Share], Terms],
        report: RoundReport,
        neighbours: Neighbours,
        pace: Pace,
        progress: Progress,
        outdated: Callable[[Share], bool],
        selection: Selection = EVERYTHING,
    ) -> None:
        """`terms` are those of sessions about a share; `outdated`: whether there is a newer ring than a share's."""
        self._driver = driver
        self._terms = terms
        self._report = report
        self._neighbours = neighbours
        self._pace = pace
        self._progress = progress
        self._outdated = outdated
        self._selection = selection
        self._agenda = Agenda(self._size, neighbours.take_back())
        self._books: dict[int, Book] = {}
        """By share."""
        self._concluded: list[tuple[Share, frozenset[int]]] = []
        """What needs no session any more: all proved, or left out."""
        self._left_out: dict[str, list[LeftOut]] = {}
        self._waiting_homes: dict[str, list[tuple[Share, Homeward]]] = {}
        self._under_way = 0
        self._news = asyncio.Event()

    # Finding out what there is to do.

    async def look_ahead(self, share: Share, held: Sequence[int]) -> None:
        """Plan what there is to do for a device that holds something of these partitions."""
        book = self._books[id(share)] = Book(share)
        mode = self._terms(share).mode
        assigned = share.places.assigned
        concerned = {partition for partition in assigned.union(held) if self._selection.has(partition)}
        homeward = self._homeward(share, concerned - assigned)
        concerned.difference_update(home.partition for home in homeward)
        away = self._away(share)
        by_peer = {
            peer: partitions & concerned
            for peer, partitions in self._neighbours_of(share, held, away).items()
            if self._selection.has_peer(share.device_of(peer))
        }
        if mode.first is not First.SUFFIXES:
            await self._read_roots(share, sorted({p for partitions in by_peer.values() for p in partitions}))
        if mode.first is First.BATCH:
            await self._prove_all(book, by_peer)
        else:
            for peer, partitions in by_peer.items():
                book.open(peer, partitions, differ=False)
            self._leave_out_failed(share, away, concerned.intersection(held))
            await self._look_for_bare(share, concerned)
        self._conclude_rest(share, concerned)
        self._agenda.go_home((share, home) for home in homeward)

    def _away(self, share: Share) -> frozenset[int]:
        return frozenset(d.id for d in share.ring.devices if d is not None and self._neighbours.skips(node_of(d)))

    def _neighbours_of(self, share: Share, held: Sequence[int], away: Collection[int]) -> Mapping[int, frozenset[int]]:
        """By peer, the partitions that are compared with it in this mode, before anything is selected."""
        mode = self._terms(share).mode
        if mode is THOROUGH:
            # As the plan, which would be the same in each round.
            return share.places.by_peer
        found: dict[int, set[int]] = {}
        for item in plan(share.ring, share.device.id, held, away, mode).items:
            found.setdefault(item.peer, set()).add(item.partition)
        return {peer: frozenset(partitions) for peer, partitions in found.items()}

    def _homeward(self, share: Share, foreign: Iterable[int]) -> list[Homeward]:
        """Handoffs among partitions that do not belong here; those that no ring has stay."""
        found = [
            Homeward(partition, unique(holder.id for holder in share.ring.primaries(partition)))
            for partition in sorted(foreign)
            if partition < share.ring.partition_count
        ]
        return [
            home for home in found if any(self._selection.has_peer(share.device_of(peer)) for peer in home.primaries)
        ]

    async def _read_roots(self, share: Share, partitions: Sequence[int]) -> None:
        try:
            await self._driver.read_roots(share, partitions)
        except SwiftletError as error:
            # Sessions ask again, each for its own.
            _log.warning("local device not readable", device=share.device.name, error=str(error))

    async def _prove_all(self, book: Book, by_peer: Mapping[int, frozenset[int]]) -> None:
        share = book.share
        slots = asyncio.Semaphore(self._pace.concurrency)

        async def prove(peer: Device, asked: frozenset[int]) -> Proofs:
            async with slots:
                return await self._prove(share, peer, asked)

        found = await asyncio.gather(*(prove(share.device_of(peer), asked) for peer, asked in by_peer.items()))
        random.shuffle(found)
        found.sort(key=lambda proofs: node_of(proofs.peer) not in self._agenda.first)
        for proofs in found:
            self._count_proved(share, proofs.proved)
            unproved = proofs.asked - proofs.proved
            if proofs.out:
                self._leave_out(share, proofs.peer, unproved)
                continue
            book.open(proofs.peer.id, unproved, differ=proofs.whole)
        for proofs in found:
            book.note(proofs.peer.id, proofs.proved, proofs.asked - proofs.proved if proofs.out else ())

    async def _prove(self, share: Share, peer: Device, asked: frozenset[int]) -> Proofs:
        """Ask a peer for proofs; one that refuses to be asked is tried until that is enough to leave it out."""
        proofs = Proofs(peer, asked)
        unreachable = False
        while not self._neighbours.skips(node_of(peer)):
            # A long question is made again only once the peer is there.
            knocking = unreachable
            partitions = sorted(asked - proofs.proved)[: 1 if knocking else None]
            course = await self._driver.drive(share, proof_session(self._terms(share), peer.id, partitions))
            proofs.proved |= course.proved
            proofs.whole = course.error is None and not knocking
            proofs.tries += 1
            unreachable = isinstance(course.error, NodeUnreachable)
            if course.error and not knocking and not isinstance(course.error, Outdated):
                _log.info("peer gave no proof", peer=peer.name, reason=str(course.error))
            if proofs.tries >= min(MAX_TRIES, len(asked)) or not (unreachable or knocking):
                break
        proofs.out = self._neighbours.skips(node_of(peer))
        return proofs

    def _leave_out_failed(self, share: Share, away: Collection[int], partitions: Iterable[int]) -> None:
        """Where a mode turns to the next healthy one: who was passed over."""
        by_peer: dict[int, set[int]] = {}
        for partition in partitions:
            for peer in share.peers(partition)[0]:
                if peer.id in away and self._selection.has_peer(peer):
                    by_peer.setdefault(peer.id, set()).add(partition)
        for peer_id, passed in by_peer.items():
            self._leave_out(share, share.device_of(peer_id), passed)

    async def _look_for_bare(self, share: Share, concerned: Collection[int]) -> None:
        """Where nothing is fetched: whether others have something of what is empty here, which is then lacking."""
        bare = share.bare.intersection(concerned)
        by_peer: dict[int, set[int]] = {}
        for partition in bare:
            for peer in share.peers(partition)[0]:
                by_peer.setdefault(peer.id, set()).add(partition)
        somewhere: set[int] = set()
        for peer_id, partitions in by_peer.items():
            device, there = share.device_of(peer_id), None
            if not self._neighbours.skips(node_of(device)):
                there = await self._driver.held_by(share, device, partitions)
            somewhere |= partitions if there is None else there
        self._concluded.append((share, frozenset(somewhere)))
        if self._selection.peers is None:
            share.standing.compared_all(somewhere, checked=False)
            share.standing.compared_all(bare - somewhere, checked=True)

    def _conclude_rest(self, share: Share, concerned: set[int]) -> None:
        """What no session has to be about."""
        left = {
            partition
            for node in self._left_out.values()
            for out in node
            if out.share is share
            for partition in out.partitions
        }
        rest = concerned - self._books[id(share)].cases
        if not self._terms(share).mode.pull:
            rest -= share.bare
        self._concluded.append((share, frozenset(rest)))
        if self._selection.peers is None:
            share.standing.compared_all(rest & left, checked=False)
            share.standing.compared_all(rest - left, checked=True)

    # Doing it.

    async def work(self) -> None:
        """Do everything that was planned."""
        everything: list[tuple[Share, Collection[int]]] = list(self._concluded)
        everything += [(book.share, book.cases) for book in self._books.values()]
        everything += [(share, (home.partition,)) for share, home in self._agenda.homes]
        self._progress.begin(everything)
        for share, done in self._concluded:
            self._progress.done_all(share, done)
        for book in self._books.values():
            self._advance(book, book.cases, gather=False)
        await asyncio.gather(*(self._worker(number) for number in range(self._pace.concurrency)))

    async def _worker(self, number: int) -> None:
        """One of those who hold sessions, which ends when there is nothing left to do and nobody is at work."""
        while True:
            if self._neighbours.somebody_is_back:
                self._take_up()
            began = False
            if number < self._pace.allowed:
                began = await self._next()
            if began:
                continue
            if not (self._under_way or self._agenda):
                self._news.set()
                return
            self._news.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._news.wait()
            except TimeoutError:
                self._agenda.ripen()

    async def _next(self) -> bool:
        """Do the next piece of work; whether there was one."""
        work = self._agenda.next(alone=not self._under_way)
        if work is None:
            return False
        await self._at_work(self._hold(work) if isinstance(work, Errand) else self._send_home(*work))
        return True

    async def _at_work(self, work: Awaitable[None]) -> None:
        self._under_way += 1
        try:
            await work
        finally:
            self._under_way -= 1
            self._news.set()

    def _size(self, share: Share) -> int:
        """How many partitions go into sessions at a time."""
        return MANY if self._terms(share).mode.first is First.BATCH else FEW

    def _advance(self, book: Book, partitions: Iterable[int], *, gather: bool) -> None:
        """On to each partition's next peer, or to its end."""
        ready, done = book.next_of(partitions)
        for peer, differs, some in ready:
            late = self._progress.were_done(book.share, some)
            self._agenda.compare(book.share, peer, some, differ=differs, late=late, gather=gather)
        if ready:
            self._news.set()
        if done:
            self._end(book, done)

    def _end(self, book: Book, partitions: set[int]) -> None:
        """All their peers were compared, or left out."""
        share = book.share
        not_whole = book.not_whole(partitions)
        self._progress.done_all(share, partitions - not_whole)
        for partition in not_whole:
            self._progress.done(share, partition, False)
        if self._selection.peers is not None:
            return
        in_order = book.in_order(partitions) if self._terms(share).mode.pull else set()
        share.standing.compared_all(in_order, checked=True)
        for partition in partitions - in_order:
            if found := book.found(partition):
                share.standing.compared(
                    partition,
                    # Two peers mostly have the same objects, so what is lacking is what one of them has, not the sum.
                    behind=max(one.behind for one in found),
                    unsent=sum(one.unsent for one in found),
                    checked=all(one.done and one.proof for one in found),
                )

    async def _hold(self, errand: Errand) -> None:
        """Hold a session."""
        share, peer, partitions = errand.share, errand.peer, set(errand.partitions)
        book = self._books[id(share)]
        if self._outdated(share):
            self._give_up(book, partitions)
            return
        if self._neighbours.skips(node_of(peer)):
            self._leave_out(share, peer, partitions)
            self._conclude(book, peer, other=dict.fromkeys(partitions, NOT_DONE))
            return
        course = await self._driver.drive(share, *self._sessions(errand))
        self._settle(book, peer, course, partitions)
        unsettled = partitions - course.proved - course.settled.keys()
        if not unsettled:
            return
        if isinstance(course.error, Outdated):
            self._give_up(book, unsettled)
        elif len(partitions) == 1:
            (partition,) = partitions
            _log.info("peer skipped", peer=peer.name, partition=partition, error=str(course.error))
            self._count(book, peer, "failed", partitions)
            behind = course.lacking[partition]
            self._conclude(book, peer, other={partition: Found(done=False, proof=False, behind=behind)})
        else:
            size = max(1, len(partitions) // _LESS)
            waiting = list(unsettled)
            for start in range(0, len(waiting), size):
                self._agenda.retry(Errand(share, peer, False, waiting[start : start + size]))

    def _sessions(self, errand: Errand) -> list[Session]:
        """One about all partitions, or, where a message is about one of them, as many as there are."""
        terms = self._terms(errand.share)
        make = differing_session if errand.differs else neighbour_session
        if terms.mode.first is First.BATCH:
            return [make(terms, errand.peer.id, errand.partitions)]
        return [make(terms, errand.peer.id, (partition,)) for partition in errand.partitions]

    def _give_up(self, book: Book, partitions: Collection[int]) -> None:
        """There is a newer ring: its own round will look at these."""
        book.give_up(partitions)
        for partition in partitions:
            self._progress.done(book.share, partition, False)

    def _settle(self, book: Book, peer: Device, course: Course, partitions: set[int]) -> None:
        """Note and count what a session has told of these partitions."""
        settled = course.settled.keys() & partitions
        equal = (course.proved & partitions) - settled
        if pulled := course.pulled.keys() & (settled | equal):
            book.compare_again(peer.id, pulled)
        left = {partition: one for partition in settled if (one := course.settled[partition]) is not None}
        # Who only pushes has not seen what the peer has besides.
        proof = self._terms(book.share).mode.pull
        other = {partition: Found(True, proof, one.behind, one.unsent) for partition, one in left.items()}
        if not proof:
            other.update(dict.fromkeys(settled - left.keys(), Found(proof=False)))
        failed = {partition for partition, one in left.items() if one.behind or one.unsent}
        PROVED.inc(len(equal))
        self._count(book, peer, "equal", equal - book.share.bare)
        self._count(book, peer, "differs", settled - failed)
        self._count(book, peer, "failed", failed)
        self._conclude(book, peer, equal=equal, settled=settled - other.keys(), other=other)

    def _count(self, book: Book, peer: Device, result: str, partitions: Collection[int]) -> None:
        """Count comparisons; those that were made once more are the same ones, unless they failed this time."""
        again = len(book.is_again(peer.id, partitions)) if partitions else 0
        if len(partitions) > again:
            self._report.count(result, len(partitions) - again)
        if result == "failed":
            self._report.failed += again

    def _conclude(
        self,
        book: Book,
        peer: Device,
        *,
        equal: Collection[int] = (),
        settled: Collection[int] = (),
        other: dict[int, Found] | None = None,
    ) -> None:
        other = other or {}
        book.conclude(peer.id, equal=equal, settled=settled, other=other)
        self._advance(book, {*equal, *settled, *other}, gather=True)

    def _count_proved(self, share: Share, partitions: Collection[int]) -> None:
        PROVED.inc(len(partitions))
        self._report.count("equal", len(partitions) - len(share.bare.intersection(partitions)))

    # Nodes that are away.

    def _leave_out(self, share: Share, peer: Device, partitions: Collection[int]) -> None:
        self._report.count("skipped", len(partitions))
        self._left_out.setdefault(node_of(peer), []).append(LeftOut(share, peer, frozenset(partitions)))

    def _take_up(self) -> None:
        """Put what was left out because of nodes that are back at the head."""
        back = self._neighbours.take_back()
        self._agenda.first |= back
        for node in back:
            homes = self._waiting_homes.pop(node, [])
            self._agenda.go_home_first(homes)
            self._progress.again(len(homes))
            for out in self._left_out.pop(node, []):
                if not self._outdated(out.share):
                    self._reopen(out)

    def _reopen(self, out: LeftOut) -> None:
        share, mode = out.share, self._terms(out.share).mode
        away = self._away(share)
        still_out = {
            (other.peer.id, partition)
            for node in self._left_out.values()
            for other in node
            if other.share is share
            for partition in other.partitions
        }
        book = self._books[id(share)]
        for partition in out.partitions:
            holders = [device.id for device in share.ring.primaries(partition)]
            if out.peer.id not in neighbours(mode, list(dict.fromkeys(holders)), share.device.id, away):
                continue
            if partition not in book.cases:
                book.cases.add(partition)
                for peer in share.peers(partition)[0]:
                    is_out = (peer.id, partition) in still_out
                    book.note(peer.id, () if is_out else (partition,), (partition,) if is_out else ())
            book.open(out.peer.id, (partition,), differ=False)
            if partition not in book.under_way:
                self._progress.again(1)
                self._advance(book, (partition,), gather=False)

    # Handoffs.

    async def _send_home(self, share: Share, home: Homeward) -> None:
        if self._outdated(share):
            self._progress.done(share, home.partition, False)
            return
        primaries = [share.device_of(peer) for peer in home.primaries]
        out = {peer.id for peer in primaries if self._neighbours.skips(node_of(peer))}
        absent = out | {peer.id for peer in primaries if not self._selection.has_peer(peer)}
        for peer in primaries:
            if peer.id in out:
                self._waiting_homes.setdefault(node_of(peer), []).append((share, home))
        session = handoff_session(self._terms(share), home.partition, home.primaries, absent)
        course = await self._driver.drive(share, session)
        self._report.count("skipped", len(out))
        whole = course.error is None and not out
        for peer_id in set(home.primaries) - absent:
            failed = peer_id in course.troubled or course.unsent[peer_id] or course.error is not None
            whole &= peer_id not in course.troubled
            self._report.count("failed" if failed else "differs" if course.pushed[peer_id] else "equal")
        if course.error is not None and not isinstance(course.error, Outdated):
            _log.info("handoff kept", device=share.device.name, partition=home.partition, error=str(course.error))
        self._progress.done(share, home.partition, whole)
        if self._selection.peers is None:
            unsent = sum(course.unsent.values())
            share.standing.compared(home.partition, unsent=unsent, checked=whole)
