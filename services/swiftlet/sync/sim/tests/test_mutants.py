"""That the checker sees: rules broken on purpose are found within a few hundred seeds, and by the right sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from swiftlet.model import Entry, Kind
from swiftlet.sync.session import batches, compare, handoff, queue, responder, topology
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import Drop
from swiftlet.sync.session.topology import MODES
from swiftlet.sync.sim import client, drive, node, store
from swiftlet.sync.sim.checker import Checker
from swiftlet.sync.sim.run import run
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

    patch.setattr(batches, "pushes", pushes)


def stores_older_data(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store, "check_put", lambda *_: True)


def drops_handoffs_unproved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handoff, "is_home", lambda *_: True)


def drops_handoffs_while_a_primary_is_away(patch: pytest.MonkeyPatch) -> None:
    original = handoff._Primaries
    patch.setattr(handoff, "_Primaries", lambda whole: original(True))


def drops_handoffs_for_one_primary(patch: pytest.MonkeyPatch) -> None:
    original = handoff._go_home
    patch.setattr(handoff, "_go_home", lambda terms, moment, p, all_, away: original(terms, moment, p, all_[:1], away))


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
        age_s = self._rules.reclaim_age_s
        if not math.isinf(age_s) and not self.store.failing:
            self.store.reclaim(Timestamp.at(self.now_s - age_s / 4))

    patch.setattr(node.Node, "reclaim", reclaim)


def forgets_tombstones_early_unseen(patch: pytest.MonkeyPatch) -> None:
    forgets_tombstones_early(patch)
    patch.setattr(Checker, "_reclaimed", lambda *_: None)


def spreads_forgotten_tombstones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches, "is_due", lambda push, now_s, _: not compare.in_flight(push.entry, now_s))


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
]


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
