"""A region that is cut off from the others while clients of all regions write, delete and read.

Three policies share the store, one for each write quorum. Measured are what clients are answered meanwhile, and when
the link is back and the clients have ended: how long until each region holds what it should, in how many rounds of
the replicator, and how many bytes of all links that took for the bytes of data that were lacking. The histories of all
objects are checked (`bench.wan.judging`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.wan.clients import POLICIES
from bench.wan.control import ask
from bench.wan.holdings import Held
from bench.wan.judging import Done, Judge, lacking_bytes, summary
from bench.wan.lab import ROOT, Lab, inside
from bench.wan.store import USER, Store
from e2e.standalone.cluster import environment
from e2e.standalone.model_history import Version

BEFORE_S = 40.0
"""Seconds of load before the cut; in the first of them each client writes all of its objects once."""
_NOTICED_S = 15.0
"""Seconds from the cut on that count by themselves: the store finds out meanwhile."""
_EQUAL_WITHIN_S = 180.0
ACCOUNT = f"AUTH_{USER.partition(':')[0]}"
Regional = dict[str, dict[str, tuple[Held | None, Held | None]]]
"""For each container and object what the primary of a region holds, and the newest that any of its devices does."""


@dataclass
class Result:
    """What clients were answered in one run, and what it took to make the regions equal again."""

    operations: list[Done] = field(default_factory=list)
    cut_at: float = 0.0
    healed_at: float = 0.0
    equal_s: float = 0.0
    """Seconds from the healed link until all regions held the same."""
    rounds: float = 0.0
    """Rounds of the cut region's replicator meanwhile; the one that ran at the beginning counts."""
    lacking: int = 0
    link_bytes: int = 0
    moved: float = 0.0
    """Bytes of objects that replicators exchanged between regions meanwhile."""
    wrong: list[str] = field(default_factory=list)


class Cut:
    """One run over a lab that is up, with a store that is started."""

    def __init__(self, lab: Lab, store: Store, directory: Path, away: str, seed: str) -> None:
        """`away` is the region to cut off; the directory takes the clients' files."""
        self._lab = lab
        self._store = store
        self._directory = directory
        self._away = away
        self._seed = seed

    def run(self, seconds: float) -> Result:
        """Cut the region off for so many seconds."""
        result = Result()
        for region in self._lab.regions:
            self._lab.start(region, f"clients-{region}", self._clients(region))
        self._wait(BEFORE_S)
        self._links("cut")
        result.cut_at = time.monotonic()
        self._wait(seconds)
        self._lab.processes.stop("clients-")
        result.operations = [one for region in self._lab.regions for one in self._written(region)]
        judge = Judge(result.operations)
        names = {policy: judge.names(policy) for policy in POLICIES}
        # What the two regions that see each other owe one another is not what the cut left behind.
        others = [region for region in self._lab.regions if region != self._away]
        self._until_equal(names, others)
        before = {region: self._holdings(region, names) for region in self._lab.regions}
        passed = self._passed()
        rounds, moved = self._store.rounds(self._away), self._moved()
        self._links("heal")
        result.healed_at = time.monotonic()
        after = self._until_equal(names, self._lab.regions)
        result.equal_s = time.monotonic() - result.healed_at
        result.rounds = self._store.rounds(self._away) - rounds
        result.link_bytes = self._passed() - passed
        result.moved = self._moved() - moved
        result.lacking = _lacking(before, after)
        result.wrong = judge.wrong_answers() + self._wrong_ends(judge, after)
        return result

    def _clients(self, region: str) -> list[str]:
        given = [self._store.endpoint(region), USER, self._store.key, region, f"{self._seed} {region}"]
        return [sys.executable, "-m", "bench.wan.clients", *given, str(self._file(region))]

    def _file(self, region: str) -> Path:
        return self._directory / f"clients-{region}.jsonl"

    def _written(self, region: str) -> list[Done]:
        return [Done(**json.loads(line)) for line in self._file(region).read_text().splitlines()]

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._lab.processes.alive()
            time.sleep(min(1.0, seconds))

    def _links(self, command: str) -> None:
        for region in self._lab.regions:
            if region != self._away:
                ask(self._lab.router, f"{command} {self._away} {region}")
                ask(self._lab.router, f"{command} {region} {self._away}")

    def _passed(self) -> int:
        """Return the bytes that have passed over all links, in both directions."""
        fields = [part for part in ask(self._lab.router, "stats").split() if part.startswith("bytes=")]
        return sum(int(part.removeprefix("bytes=")) for part in fields)

    def _moved(self) -> float:
        return sum(self._store.moved(region) for region in self._lab.regions)

    def _holdings(self, region: str, names: Mapping[str, Sequence[str]]) -> Regional:
        given = [str(self._store.directory), self._lab.address(region), ACCOUNT]
        command = [*inside(region), sys.executable, "-m", "bench.wan.holdings", *given]
        done = subprocess.run(
            command, input=json.dumps(names), capture_output=True, text=True, check=False, env=environment(), cwd=ROOT
        )
        if done.returncode != 0:
            raise RuntimeError(f"what {region} holds can't be asked:\n{done.stderr[-3000:]}")
        return {
            container: {name: (_held(primary), _held(newest)) for name, (primary, newest) in found.items()}
            for container, found in json.loads(done.stdout).items()
        }

    def _until_equal(self, names: Mapping[str, Sequence[str]], regions: Sequence[str]) -> Regional:
        """Wait until the primaries of these regions hold the same, which is returned.

        Each region is asked from within: that takes no bytes of a link.
        """
        deadline = time.monotonic() + _EQUAL_WITHIN_S
        while True:
            found = [self._holdings(region, names) for region in regions]
            differing = [
                f"{container}/{name}"
                for container, objects in found[0].items()
                for name in objects
                if len({one[container][name][0] for one in found}) > 1
            ]
            if not differing:
                return found[0]
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{len(differing)} objects differ among {', '.join(regions)} after {_EQUAL_WITHIN_S:.0f} s, "
                    f"such as {differing[0]}"
                )
            time.sleep(0.2)

    def _wrong_ends(self, judge: Judge, after: Regional) -> list[str]:
        at, wrong = time.monotonic(), []
        for policy, objects in after.items():
            found = {
                name: None if held is None else Version(held[2], held[1], "", "") for name, (held, _) in objects.items()
            }
            wrong += judge.wrong_ends(policy, found, at)
        return wrong


def _held(found: list[object] | None) -> Held | None:
    if found is None:
        return None
    timestamp, size, etag = found
    assert isinstance(size, int)
    return str(timestamp), size, str(etag)


def _version(held: Held | None) -> Version | None:
    return None if held is None else Version(held[2], held[1], "", "")


def _lacking(before: Mapping[str, Regional], after: Regional) -> int:
    held = {
        region: {
            f"{container}/{name}": None if newest is None else newest[:2]
            for container, objects in regional.items()
            for name, (_, newest) in objects.items()
        }
        for region, regional in before.items()
    }
    there = {
        f"{container}/{name}": primary[:2]
        for container, objects in after.items()
        for name, (primary, _) in objects.items()
        if primary is not None
    }
    return lacking_bytes(held, there)


def page(result: Result, away: str, regions: Sequence[str]) -> str:
    """Return tables of what was found, in Markdown."""
    others = [region for region in regions if region != away]
    noticed = result.cut_at + _NOTICED_S
    phases = (
        ("before", [one for one in result.operations if one.ended < result.cut_at]),
        ("first 15 s", [one for one in result.operations if result.cut_at <= one.begun < noticed]),
        ("cut off", [one for one in result.operations if noticed <= one.begun]),
    )
    rows = [
        f"| {policy} | {what} in {where} | "
        + " | ".join(str(summary(operations, chosen, policy, is_write)) for _, operations in phases)
        + " |"
        for policy in POLICIES
        for where, chosen in ((away, [away]), (" and ".join(others), others))
        for what, is_write in (("writes", True), ("reads", False))
    ]
    refusals = [one for one in phases[2][1] if one.policy == "each-region" and one.status >= 500]
    said = sorted({one.reason.strip() for one in refusals})[:3]
    return "\n".join(
        [
            "| policy | | " + " | ".join(name for name, _ in phases) + " |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "Operations, share that was served, median ms, worst ms.",
            "",
            f"Refusals of each-region: {'; '.join(said) or 'none'}",
            f"Equal after {result.equal_s:.1f} s and {result.rounds:.0f} rounds; {result.lacking / 1e6:.1f} MB were "
            f"lacking, {result.link_bytes / 1e6:.1f} MB went over all links "
            f"({result.link_bytes / max(1, result.lacking):.2f} times), {result.moved / 1e6:.1f} MB of them objects "
            f"({result.moved / max(1, result.lacking):.2f} times).",
            f"Wrong answers and ends: {len(result.wrong)} in {len(result.operations)} operations.",
        ]
    )
