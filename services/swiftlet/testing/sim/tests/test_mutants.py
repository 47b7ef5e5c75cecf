"""That the checker sees: rules broken on purpose are found within a few hundred seeds, and by the right sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import pytest

from swiftlet.listing import replica
from swiftlet.model import Entry, Kind, ObjectRow
from swiftlet.sync.audit import verdict
from swiftlet.sync.databases.exchange import Exchange
from swiftlet.sync.databases.transfer_rules import DatabaseTransferRules
from swiftlet.sync.session import compare, handoff, many_partitions, queue, responder, topology
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

SEEDS = 500
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


FOUND: list[tuple[Mutant, str]] = [
    (pushes_older_data, "is sent to device"),
    (stores_older_data, "went back from"),
    (drops_handoffs_unproved, "lacks it"),
    (drops_handoffs_while_a_primary_is_away, "lacks it|gives away"),
    (drops_handoffs_for_one_primary, "lacks it"),
    (drops_what_was_not_proved, "which was not proved"),
    (drops_under_a_newer_ring, "a primary, drops|gives away|lacks it"),
    (believes_every_device_to_be_primary, "gives away|lacks it"),
    (forgets_tombstones_early, "forgets .* after|still has"),
    (forgets_tombstones_early_unseen, "came back|is lost|lacks it"),
    (spreads_forgotten_tombstones, "though it is forgotten"),
    (does_not_skip_failed_neighbours, "not equal after"),
    (batched_does_not_pull, "not equal after"),
    (acknowledges_without_a_quorum, "is lost|came back"),
    (ignores_metadata, "not equal after"),
    (keeps_stale_roots, "not equal after|messages between equals"),
    (ranks_rows_by_their_newest_timestamp, "is listed as"),
    (lets_no_deletion_win, "is listed as"),
    (acknowledges_what_nobody_listed, "is listed as"),
    (brings_nothing_that_is_pending, "pending updates"),
    (forgets_pending_updates_with_handoffs, "is listed as"),
    (exchanges_no_rows, "are not equal after"),
    (exchanges_the_first_page, "are not equal after"),
    (drops_databases_that_are_not_home, "container device .* drops"),
    (counts_deleted_rows, "its rows"),
    (audits_by_some_devices, "takes back"),
]
RARE: list[tuple[Mutant, int, str]] = [
    (acknowledges_posts_like_data, 14_700, "is listed as"),
    (audits_nothing, 20_073, "is listed as"),
]
"""Those that few seeds find, with one of them."""


@pytest.mark.parametrize(("mutant", "sentence"), FOUND, ids=[mutant.__name__ for mutant, _ in FOUND])
def test_it_is_found(mutant: Mutant, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    seen = []
    for seed in range(1, SEEDS + 1):
        broken = run(seed).broken
        if broken is not None:
            seen.append(broken)
            if re.search(sentence, broken):
                return
    pytest.fail(f"not found in {SEEDS} seeds; others: {seen[:3]}")


@pytest.mark.parametrize(("mutant", "seed", "sentence"), RARE, ids=[mutant.__name__ for mutant, *_ in RARE])
def test_it_is_found_by_one_seed(mutant: Mutant, seed: int, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(seed).broken is None
    mutant(monkeypatch)
    assert re.search(sentence, run(seed).broken or "")
