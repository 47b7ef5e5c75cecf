"""Runs many seeds on all cores, and shows what went wrong in the first ones that broke something.

    python -m swiftlet.testing.sim --seed 1 --seeds 2000
    python -m swiftlet.testing.sim --seed 1234 --trace

A seed and the commit are all that a replay needs. Exit status 0 when every seed held, 1 otherwise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from functools import partial

from swiftlet.sync.session.topology import MODES
from swiftlet.testing.sim.checker import Counts
from swiftlet.testing.sim.run import Report, run

_SHOWN = 5
"""How many broken seeds are shown."""
_TAIL = 60
"""How many lines of the trace are shown of each."""
_PROGRESS = 10_000
"""After how many seeds a long run reports its progress."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    began_s = time.monotonic()
    seeds = range(options.seed, options.seed + options.seeds)
    one = partial(run, mode=options.mode, large=options.large)
    totals, broken, done = Counts(), 0, 0
    with multiprocessing.Pool(min(options.workers, len(seeds))) as pool:
        for report in pool.imap_unordered(one, seeds, chunksize=8 if len(seeds) > 64 else 1):
            done += 1
            _sum(totals, report.counts)
            if report.broken is not None:
                broken += 1
                if broken <= _SHOWN:
                    _show(report, options)
            if done % _PROGRESS == 0 and done < len(seeds):
                _say(_summary(totals, done, broken, time.monotonic() - began_s))
    if options.trace and len(seeds) == 1:
        _say("\n".join(run(options.seed, options.mode, options.large, tracing=True).trace))
    _say(_summary(totals, len(seeds), broken, time.monotonic() - began_s))
    return 1 if broken else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m swiftlet.testing.sim", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=_positive, default=1, help="how many seeds, one after the other")
    parser.add_argument("--workers", type=_positive, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--mode", choices=sorted(MODES), help="this mode in every world, not the seed's own")
    parser.add_argument("--large", action="store_true", help="worlds of 20 to 64 nodes and up to 4096 partitions")
    parser.add_argument("--trace", action="store_true", help="show all that happened (with a single seed)")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a number of 1 or more")
    return number


def replay(seed: int, mode: str | None, large: bool) -> str:
    """Return the command that shows a seed's whole history."""
    extra = (f" --mode {mode}" if mode else "") + (" --large" if large else "")
    return f"make sim SEED={seed} SIM_ARGS='--trace{extra}'"


def _show(report: Report, options: argparse.Namespace) -> None:
    again = run(report.seed, options.mode, options.large, tracing=True)
    _say(f"seed {report.seed} ({report.shape.mode.name}): {report.broken}")
    _say(f"  faults: {_listed(report.counts.faults)}")
    if again.broken != report.broken:
        _say(f"  and not the same when replayed: {again.broken}")
    _say("\n".join(f"  {line}" for line in again.trace[-_TAIL:]))
    _say(f"  all of it, at this commit: {replay(report.seed, options.mode, options.large)}")


def _sum(totals: Counts, counts: Counts) -> None:
    for name, number in counts.faults.items():
        totals.faults[name] = totals.faults.get(name, 0) + number
    for name in Counts.__slots__:
        if name != "faults":
            setattr(totals, name, getattr(totals, name) + getattr(counts, name))


def _summary(totals: Counts, seeds: int, broken: int, seconds: float) -> str:
    return (
        f"{seeds} seeds in {seconds:.1f} s, {broken} broken: {totals.writes} writes, {totals.moved} objects moved, "
        f"{totals.crossed} of them into another region ({totals.crossed_again} had been there before), "
        f"{totals.dropped} handoff copies dropped, {totals.reclaimed} tombstones forgotten "
        f"({totals.exempt} with older data away), {totals.messages} messages; {totals.rows} changes of rows, "
        f"{totals.proved} names listed as they are, {totals.unproved} that needed an audit, by which at last "
        f"{totals.audited} rows of theirs were put right; faults: {_listed(totals.faults)}"
    )


def _listed(faults: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(faults.items())) or "none"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
