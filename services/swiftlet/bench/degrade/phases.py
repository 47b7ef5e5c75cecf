"""Loads a store before, while and after something of it is broken: three phases, which are steps of one result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from swiftlet.bench.degrade.commands import Commands
from swiftlet.bench.degrade.hand import BROKEN, MENDED, Acts, Hand
from swiftlet.bench.degrade.modes import MAX_SECONDS, Mode
from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import BrokenMode, Result, appended
from swiftlet.bench.runner import Options, Progress, run, steps
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

PHASES = ("before", "broken", "mended")
TASK_PHASES = ("before", "during", "after")


@dataclass(frozen=True)
class Way:
    """A mode, and what does it."""

    name: str
    about: str
    seconds: float
    acts: Acts


def way_of(mode: Mode, commands: Commands) -> Way:
    """Return a mode that is done by commands."""
    mend, whole = mode.mend, mode.whole

    def mends() -> None:
        try:
            commands.run(f"mend of {mode.name}", mend or "")
            commands.surroundings["SWIFTLET_MENDED"] = f"{time.time():.3f}"
        except BenchError as error:
            raise BenchError(f"{error}; what was broken may still be so: put it right by hand") from error

    acts = Acts(
        breaks=lambda: commands.run(f"break of {mode.name}", mode.breaks),
        mends=mends,
        until_whole=None
        if whole is None
        else lambda over: commands.until_it_succeeds(f"whole of {mode.name}", whole, over),
        is_task=mode.task,
        ends=commands.end,
        mends_always=True,
    )
    return Way(mode.name, mode.told, mode.seconds, acts)


def check_scenario(scenario: Scenario) -> None:
    """Check that a scenario can be the load of phases; BenchError when it can't."""
    if len(list(steps(scenario))) > 1 or (scenario.closed is not None and scenario.closed.ramp is not None):
        raise BenchError(
            "the load of phases has to be one number of clients, or one rate: --set closed.connections=8 chooses one"
        )


def measured(scenario: Scenario, target: Target, way: Way, options: Options) -> Result:
    """Load a store, and break and mend it in one way meanwhile, as often as `options.runs` says.

    Phases have no warm-up: what happens as soon as something is broken counts. BenchError when something could not be
    broken or mended; whatever happens, the store was mended then, or the message says that it was not.
    """
    check_scenario(scenario)
    found: Result | None = None
    for number in range(1, options.runs + 1):
        one = _once(scenario, target, way, replace(options, runs=len(PHASES), prefix=f"{options.prefix}-{number}"))
        found = one if found is None else appended(found, one)
        if found.is_cut_short:
            break
    assert found is not None
    return found


def _once(scenario: Scenario, target: Target, way: Way, options: Options) -> Result:
    acts, seconds = way.acts, way.seconds
    hand = Hand(acts, options.stops)

    def report(progress: Progress) -> None:
        options.report(progress)
        hand.at(progress)

    chosen = replace(
        options,
        report=report,
        gate=hand.begins,
        ended=hand.end,
        stops=lambda: max(options.stops(), int(hand.has_failed)),
        suffices=(lambda progress: progress.seconds >= seconds and hand.rests) if acts.is_task else options.suffices,
    )
    load = _load(scenario, MAX_SECONDS if acts.is_task else seconds)
    result = run(load, target, chosen)
    found = zip(result.steps, TASK_PHASES if acts.is_task else PHASES, _told(hand, acts.is_task), strict=False)
    phases = [
        step.model_copy(update={"run": 1, "mode": way.name, "phase": phase, **told}) for step, phase, told in found
    ]
    mode = BrokenMode(about=way.about, seconds=seconds, is_task=acts.is_task)
    return result.model_copy(
        update={
            "scenario": _load(scenario, seconds).document(),
            "steps": tuple(phases),
            "modes": {way.name: mode},
        }
    )


def _load(scenario: Scenario, seconds: float) -> Scenario:
    return scenario.model_copy(update={"duration_s": seconds, "count": None, "warm_up_s": 0.0})


def _told(hand: Hand, is_task: bool) -> Iterator[dict[str, object]]:
    """Return what the hand tells of each phase."""
    whole = {"whole_s": hand.whole_s, "is_whole": hand.is_whole}
    yield {}
    yield {"act_s": hand.act_s.get(BROKEN), "first_success_s": hand.first_success_s}
    yield {**({} if is_task else {"act_s": hand.act_s.get(MENDED)}), **whole}


def together(results: Sequence[Result], scenario: Scenario) -> Result:
    """Return one result with the modes of several, which were measured one after the other."""
    first = results[0]
    return first.model_copy(
        update={
            "scenario": _load(scenario, first.scenario["duration_s"]).document(),
            "preparation_s": sum(one.preparation_s for one in results),
            "is_cut_short": any(one.is_cut_short for one in results),
            "steps": tuple(step for one in results for step in one.steps),
            "modes": {name: mode for one in results for name, mode in one.modes.items()},
        }
    )
