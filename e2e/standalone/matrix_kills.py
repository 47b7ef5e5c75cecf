"""Kills every kind of process of a store with erasure coding while something is seen to be under way that it may cut
off: writes, packing, the rebuild of a device, and each step of moves between policies.

What was hit least is hit next. What is under way is seen right before a process is killed, in what clients are about to
do, in what movers say, and in the replicator's status report; of packing it is also known afterwards, by what
replicators have logged of their rounds.

Fault model: that of `e2e.standalone.coded_kills`, and SIGKILL of movers, container servers, metadata servers and the
replicator of databases.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from e2e.standalone import coded_kills as kills
from e2e.standalone.cluster import Cluster
from e2e.standalone.lanes import ANNOUNCED, COPYING, MOVING, Lane
from e2e.standalone.packed_model import PackedModel

RINGS = ("object-0", kills.RING)
WRITE, PACK, REPACK, REBUILD = "write", "pack", "repack", "rebuild"
MOVES = (ANNOUNCED, MOVING, COPYING)
ACTIVITIES = (WRITE, PACK, REPACK, REBUILD, *MOVES)
KINDS = ("object", "proxy", "worker", "replicator", "container", "database", "metadata", "mover")
HARMFUL = {"object", "replicator"}
"""Without these devices prove that they are whole, whatever else is killed."""
LISTINGS = {
    "container": ("container-1", "container-2", "container-3"),
    "database": ("database-replicator",),
    "metadata": ("metadata",),
}
FIRST_WIPE = 2
"""Kills before the first device is wiped."""
MORE = 0.3
"""The share of proxies and replicators with which an object server is killed as well, and of those with another one."""
NOTHING = ""
PATIENCE_S = 1.0
"""For so long a kill waits at most for what was hit least, when something else is under way."""
LOOK_S = 0.05
WORKS_S = 0.03
"""A packer that has worked in a partition for so long has found something to do there."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed, and what was under way."""

    at_s: float
    kind: str
    during: frozenset[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What is so at a moment."""

    during: frozenset[str]
    is_whole: bool
    """Whether the device that was wiped last has all that it lacked, by proof."""


def wanted(hits: Mapping[tuple[str, str], int], during: frozenset[str], kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Return which kinds of processes are best killed now, with what they would hit: what was hit least of what is
    under way.
    """
    pairs = [(what, kind) for what in sorted(during) for kind in kinds if may_hit(what, kind)]
    least = min((hits.get(pair, 0) for pair in pairs), default=0)
    return [pair for pair in pairs if hits.get(pair, 0) == least]


def may_hit(what: str, kind: str) -> bool:
    """Whether a process of this kind has to do with something: movers have with moves alone."""
    return kind != "mover" or what in MOVES


def is_packing(report: Mapping[str, Any]) -> set[str]:
    """Return what replicators pack now, by the status report."""
    packing = report.get("packing")
    if packing is None:
        return set()
    works = packing["made"] or packing["rewritten"] or (packing["partitionForS"] or 0.0) >= WORKS_S
    return {what for what, is_so in ((PACK, works), (REPACK, packing["rewritten"])) if is_so}


def lacks(report: Mapping[str, Any], device: str) -> bool:
    """Whether the replicator knows of something that this device lacks in the policy with erasure coding."""
    found = [rings["rings"] for name, rings in report["devices"].items() if name.rpartition("/")[2] == device]
    return any(rings[kills.RING]["behind"] > 0 for rings in found if kills.RING in rings)


class MatrixKiller(kills.Killer):
    """Kills every kind of process, and notes what was under way."""

    rings = RINGS

    def __init__(
        self,
        cluster: Cluster,
        chooser: random.Random,
        over: threading.Event,
        model: PackedModel,
        lanes: Sequence[Lane],
    ) -> None:
        """`model` knows what is written, `lanes` what is moved."""
        super().__init__(cluster, chooser, over)
        self._model = model
        self._lanes = lanes
        self._last_wipe = FIRST_WIPE - kills.WIPE_EVERY
        self._wiped = ""
        self._during: frozenset[str] = frozenset()
        self.hits: Counter[tuple[str, str]] = Counter()
        """Processes that were killed, by what was under way and by their kind."""
        self.all: list[Kill] = []

    def step(self) -> None:
        """Wait a little for what was hit least, and kill a process that may cut it off."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._over.is_set():
            seen = self._look()
            if pair := self._chosen(seen, is_patient=time.monotonic() < deadline):
                self._during = seen.during
                self._kill(*pair, is_wiped=self._is_due and seen.is_whole)
                return
            self._over.wait(LOOK_S)

    @property
    def _is_due(self) -> bool:
        """Whether the next device is to be wiped, once all is whole."""
        return self.kills - self._last_wipe >= kills.WIPE_EVERY

    def _chosen(self, seen: Seen, *, is_patient: bool) -> tuple[str, str] | None:
        """Return what is to be hit now, and the kind of process that is to be killed; None to wait for something else.

        Until devices prove that all is whole, so that the next one may be wiped, what hinders that is left alone.
        """
        if self._is_due and seen.is_whole:
            return NOTHING, "object"
        kinds = [kind for kind in KINDS if not (self._is_due and kind in HARMFUL)]
        least = self.hits[wanted(self.hits, frozenset(ACTIVITIES), kinds)[0]]
        best = wanted(self.hits, seen.during, kinds)
        if is_patient and (not best or self.hits[best[0]] > least):
            return None
        return self._chooser.choice(best or [(NOTHING, kind) for kind in kinds if may_hit(NOTHING, kind)])

    def _kill(self, what: str, kind: str, *, is_wiped: bool) -> None:
        if kind == "mover":
            self._kill_mover(what)
        elif kind == "worker":
            self._kill_worker()
        else:
            self._end(self._victims(kind), is_wiped)

    def _victims(self, kind: str) -> list[str]:
        if kind in LISTINGS:
            return [self._chooser.choice(LISTINGS[kind])]
        may_more = not self._is_due and self._chooser.random() < MORE
        if kind == "object":
            return self._chooser.sample(kills.SERVERS, 2 if may_more else 1)
        return [kind, self._chooser.choice(kills.SERVERS)] if may_more else [kind]

    def _kill_mover(self, what: str) -> None:
        """Kill one that is at this; what else is under way has nothing to do with it."""
        at_it = [lane for lane in self._lanes if lane.activity == what]
        if at_it and self._chooser.choice(at_it).kill():
            self._during = frozenset([what])
            self._note("mover")

    def _wipe(self, server: str) -> None:
        super()._wipe(server)
        self._wiped = f"d{server.partition('-')[2]}"

    def _note(self, kind: str) -> None:
        self.killed[kind] += 1
        self.hits.update((what, kind) for what in self._during)
        self.all.append(Kill(time.time(), kind, self._during))

    def _look(self) -> Seen:
        """See what is under way."""
        during = {lane.activity for lane in self._lanes} - {None}
        try:
            report = kills.report_of(self._cluster)
        except OSError:
            report = None
        if report is not None:
            during |= is_packing(report)
        since_s = None if self._wiped_s is None else self._wiped_s + kills.YOUNG_S
        is_whole = since_s is None or (report is not None and kills.proves(report, since_s, self.rings))
        if not is_whole and report is not None and lacks(report, self._wiped):
            during.add(REBUILD)
        if self._model.large_puts:
            during.add(WRITE)
        return Seen(frozenset(what for what in during if what is not None), is_whole)


def packing_rounds(cluster: Cluster) -> list[tuple[float, float, str]]:
    """When replicators have packed, by what they have logged: begin, end, and whether packs were written anew."""
    found = []
    for line in cluster.log("replicator").splitlines():
        if '"round of packing"' not in line:
            continue
        told = json.loads(line)
        ended_s = datetime.fromisoformat(told["timestamp"]).timestamp()
        for what in (PACK,) * (told["made"] > told["rewritten"]) + (REPACK,) * (told["rewritten"] > 0):
            found.append((ended_s - told["seconds"], ended_s, what))
    return found


def matrix_of(cluster: Cluster, all_kills: Sequence[Kill]) -> dict[str, Counter[str]]:
    """How many processes of each kind were killed, by what was under way."""
    rounds = packing_rounds(cluster)
    found: dict[str, Counter[str]] = {}
    for kill in all_kills:
        packed = {what for begun_s, ended_s, what in rounds if begun_s <= kill.at_s <= ended_s}
        for what in kill.during | packed:
            found.setdefault(what, Counter())[kill.kind] += 1
    return found


def assert_hit(matrix: Mapping[str, Counter[str]], killed: Counter[str]) -> None:
    """Each kind was killed, and everything was cut off by servers, proxies and replicators, and moves by movers."""
    assert all(killed[kind] for kind in (*KINDS, "wiped")), killed
    for what in ACTIVITIES:
        found = matrix.get(what, Counter())
        assert found["object"], (what, found)
        assert found["proxy"] + found["worker"], (what, found)
        assert found["replicator"], (what, found)
        assert found["container"] + found["metadata"] + found["database"], (what, found)
        assert what not in MOVES or found["mover"], (what, found)
