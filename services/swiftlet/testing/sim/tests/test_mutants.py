"""That the checker sees: rules broken on purpose are found by a seed that is known to, and by the right sentence.

A change to the simulator, or to what it drives, gives seeds other histories. Where the known seed and those behind it
no longer find a broken rule, `make mutants MUTANT_SEEDS=500` names the first one that does: most rules are found by
every third seed, some by one of hundreds.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import pytest

from swiftlet.listing import replica
from swiftlet.model import Entry, Kind, ObjectRow
from swiftlet.sync.audit import verdict
from swiftlet.sync.databases.exchange import Exchange
from swiftlet.sync.databases.transfer_rules import DatabaseTransferRules
from swiftlet.sync.session import compare, far, handoff, many_partitions, queue, responder, topology
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import Drop
from swiftlet.sync.session.topology import MODES
from swiftlet.testing.sim import client, drive, node, store
from swiftlet.testing.sim.checker import Checker
from swiftlet.testing.sim.listings import rows
from swiftlet.testing.sim.listings import store as listing_store
from swiftlet.testing.sim.listings import world as listing_world
from swiftlet.testing.sim.pending import PendingSet
from swiftlet.testing.sim.run import run
from swiftlet.timestamp import Timestamp

SEEDS = int(os.environ.get("MUTANT_SEEDS", "0"))
"""Set, the seeds from 1 on that look for each mutant in the place of the known one."""
TRIES = 20
"""Seeds that look for a mutant, from the known one on."""
Mutant = Callable[[pytest.MonkeyPatch], None]


def pushes_older_data(patch: pytest.MonkeyPatch) -> None:
    def pushes(mine: Iterable[Entry], theirs: Iterable[Entry]) -> list[Push]:
        there = {entry.digest: entry for entry in theirs}
        return [
            Push(e, Need.TOMBSTONE if e.kind is Kind.TOMBSTONE else Need.DATA, e.digest not in there)
            for e in mine
            if there.get(e.digest) != e
        ]

    patch.setattr(many_partitions, "pushes", pushes)


def stores_older_data(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store, "check_put", lambda *_: True)


def drops_handoffs_unproved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handoff, "is_returned", lambda *_: True)


def drops_handoffs_while_a_primary_is_away(patch: pytest.MonkeyPatch) -> None:
    original = handoff._Primaries
    patch.setattr(handoff, "_Primaries", lambda whole: original(True))


def drops_handoffs_for_one_primary(patch: pytest.MonkeyPatch) -> None:
    original = handoff._return_handoff
    patch.setattr(
        handoff, "_return_handoff", lambda terms, moment, p, all_, away: original(terms, moment, p, all_[:1], away)
    )


def drops_what_was_not_proved(patch: pytest.MonkeyPatch) -> None:
    def remove(self: store.SimStore, partition: int, entry: Entry) -> bool:
        held = self.held(partition, entry.digest)
        if held is not None:
            self._forget(partition, held, "drop")
        return held is not None

    patch.setattr(store.SimStore, "remove", remove)


def drops_under_a_newer_ring(patch: pytest.MonkeyPatch) -> None:
    def drop(self: drive.Drive, effect: Drop) -> int:
        self._node.witness.dropping(self._node, effect, self._began_s)
        return sum(self._node.store.remove(effect.partition, entry) for entry in effect.entries)

    patch.setattr(drive.Drive, "_drop", drop)


def believes_every_device_to_be_primary(patch: pytest.MonkeyPatch) -> None:
    original = responder.answer_by
    patch.setattr(
        node, "answer_by", lambda look, request, ring, _, limits: original(look, request, ring, lambda p: True, limits)
    )


def forgets_tombstones_early(patch: pytest.MonkeyPatch) -> None:
    def reclaim(self: node.Node) -> None:
        age_s = self._world_terms.reclaim_age_s
        if not math.isinf(age_s) and not self.store.failing:
            self.store.reclaim(Timestamp.at(self.now_s - age_s / 4))

    patch.setattr(node.Node, "reclaim", reclaim)


def forgets_tombstones_early_unseen(patch: pytest.MonkeyPatch) -> None:
    forgets_tombstones_early(patch)
    patch.setattr(Checker, "_reclaimed", lambda *_: None)


def spreads_forgotten_tombstones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(many_partitions, "is_due", lambda push, now_s, _: not compare.in_flight(push.entry, now_s))


def does_not_skip_failed_neighbours(patch: pytest.MonkeyPatch) -> None:
    original = topology.neighbours
    patch.setattr(queue, "neighbours", lambda mode, holders, local, failed: original(mode, holders, local, ()))


def batched_does_not_pull(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(MODES, "batched", replace(MODES["batched"], pull=False))


def acknowledges_without_a_quorum(patch: pytest.MonkeyPatch) -> None:
    original = client._Fan.begin

    def begin(self: client._Fan) -> None:
        self._quorum = 1
        original(self)

    patch.setattr(client._Fan, "begin", begin)


def ignores_metadata(patch: pytest.MonkeyPatch) -> None:
    original = compare.need_of

    def need_of(mine: Entry, theirs: Entry | None) -> Need | None:
        need = original(mine, theirs)
        return None if need is Need.META else need

    patch.setattr(compare, "need_of", need_of)


def keeps_stale_roots(patch: pytest.MonkeyPatch) -> None:
    original = store.SimStore._account

    def account(
        self: store.SimStore, partition: int, digest: bytes, old: Entry | None, new: Entry | None, why: str
    ) -> None:
        kept = self._roots.get(partition)
        original(self, partition, digest, old, new, why)
        if kept is not None and why != "client":
            self._roots[partition] = kept

    patch.setattr(store.SimStore, "_account", account)


def leaves_everything_to_somebody_else(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(far.Far, "patience_of", lambda _self, peer, _partition, _pull: (peer, math.inf))


# Listings.


def acknowledges_posts_like_data(patch: pytest.MonkeyPatch) -> None:
    original = PendingSet.add

    def add(self: PendingSet, digest: bytes, timestamp: Timestamp, replicas: Collection[int], post: bool) -> None:
        original(self, digest, timestamp, replicas, post=False)

    patch.setattr(PendingSet, "add", add)


def ranks_rows_by_their_newest_timestamp(patch: pytest.MonkeyPatch) -> None:
    def merged(self: ObjectRow, other: ObjectRow) -> ObjectRow:
        return max(self, other, key=lambda row: (row.modified, row.size, row.etag))

    patch.setattr(ObjectRow, "merged", merged)


def lets_no_deletion_win(patch: pytest.MonkeyPatch) -> None:
    original = ObjectRow.merged

    def merged(self: ObjectRow, other: ObjectRow) -> ObjectRow:
        return original(self, other) if self.deleted == other.deleted else other if self.deleted else self

    patch.setattr(ObjectRow, "merged", merged)


def acknowledges_what_nobody_listed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "through", lambda *_: True)


def brings_nothing_that_is_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows.DeviceRows, "_bring", lambda *_: None)


def forgets_pending_updates_with_handoffs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingSet, "__contains__", lambda *_: False)
    original = store.SimStore._forget

    def forget(self: store.SimStore, partition: int, old: store.Held, why: str) -> None:
        original(self, partition, old, why)
        assert old.entry is not None
        self.pending._updates.pop(old.entry.digest, None)

    patch.setattr(store.SimStore, "_forget", forget)


def exchanges_no_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica, "lacking", lambda *_: [])


def exchanges_the_first_page(patch: pytest.MonkeyPatch) -> None:
    async def first(self: Exchange, name: object) -> None:
        """Nothing behind the first page."""
        (upto, digest), *_ = await self.transport.page_digests(self.near, self.id, "", "")
        await self._page(name, "", upto, digest)  # type: ignore[arg-type]

    patch.setattr(Exchange, "_pages", lambda self, name, _end: first(self, name))


def drops_databases_that_are_not_home(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DatabaseTransferRules, "is_returned", lambda *_: True)


def counts_deleted_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(listing_store, "_weight", lambda row, sign: (sign, sign * row.size))


def audits_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(listing_world, "judge", lambda *_: verdict.NoRepair.FINE)


def audits_by_some_devices(patch: pytest.MonkeyPatch) -> None:
    original = verdict.judge
    patch.setattr(listing_world, "judge", lambda row, truth, _: original(row, truth, True))


FOUND: list[tuple[Mutant, int, str]] = [
    (pushes_older_data, 1, "is sent to device"),
    (stores_older_data, 6, "went back from"),
    (drops_handoffs_unproved, 1, "lacks it"),
    (drops_handoffs_while_a_primary_is_away, 8, "lacks it|gives away"),
    (drops_handoffs_for_one_primary, 1, "lacks it"),
    (drops_what_was_not_proved, 90, "which was not proved"),
    (drops_under_a_newer_ring, 9, "a primary, drops|gives away|lacks it"),
    (believes_every_device_to_be_primary, 1, "gives away|lacks it"),
    (forgets_tombstones_early, 1, "forgets .* after|still has"),
    (forgets_tombstones_early_unseen, 35, "came back|is lost|lacks it"),
    (spreads_forgotten_tombstones, 20, "though it is forgotten"),
    (does_not_skip_failed_neighbours, 200, "not equal after"),
    (batched_does_not_pull, 57, "not equal after"),
    (acknowledges_without_a_quorum, 611, "is lost|came back"),
    (ignores_metadata, 7, "not equal after"),
    (keeps_stale_roots, 5, "not equal after|messages between equals"),
    (leaves_everything_to_somebody_else, 5, "not equal after"),
    (ranks_rows_by_their_newest_timestamp, 6, "is listed as"),
    (lets_no_deletion_win, 1, "is listed as"),
    (acknowledges_what_nobody_listed, 7, "is listed as"),
    (brings_nothing_that_is_pending, 2, "pending updates"),
    (forgets_pending_updates_with_handoffs, 43, "is listed as"),
    (exchanges_no_rows, 4, "are not equal after"),
    (exchanges_the_first_page, 6, "are not equal after"),
    (drops_databases_that_are_not_home, 174, "container device .* drops"),
    (counts_deleted_rows, 1, "its rows"),
    (audits_by_some_devices, 221, "takes back"),
    (acknowledges_posts_like_data, 14_700, "is listed as"),
    (audits_nothing, 20_073, "is listed as"),
]
"""Each mutant with a seed that finds it soon, and what is said then."""


@pytest.mark.timeout(3600 if SEEDS else 300)
@pytest.mark.parametrize(("mutant", "known", "sentence"), FOUND, ids=[mutant.__name__ for mutant, *_ in FOUND])
def test_it_is_found(mutant: Mutant, known: int, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SEEDS or run(known).broken is None
    mutant(monkeypatch)
    seeds = range(1, SEEDS + 1) if SEEDS else range(known, known + TRIES)
    seen = []
    for seed in seeds:
        broken = run(seed).broken
        if broken is not None:
            seen.append(broken)
            if re.search(sentence, broken):
                print(f"{mutant.__name__}: seed {seed}")
                return
    pytest.fail(f"no seed from {seeds[0]} to {seeds[-1]} finds it; others: {seen[:3]}")
