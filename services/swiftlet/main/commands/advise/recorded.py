"""Reads a load out of a result of `swiftlet bench run --json`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from swiftlet.advice.errors import AdviceError
from swiftlet.advice.load import Load
from swiftlet.advice.sizes import of_pieces
from swiftlet.bench.results import StepResult, read_result
from swiftlet.bench.scenario import Scenario


def load_of(path: Path) -> Load:
    """Return the load of the step with most operations per second: medians of all runs. AdviceError, BenchError."""
    result = read_result(path)
    try:
        scenario = Scenario.model_validate(result.scenario)
    except ValidationError as error:
        raise AdviceError(f"{path}: scenario: it is none that this release knows") from error
    groups: dict[tuple[int, float | None], list[StepResult]] = defaultdict(list)
    for step in result.steps:
        if step.window_s:
            groups[step.connections, step.per_second].append(step)
    if not groups:
        raise AdviceError(f"{path}: steps: nothing was measured")
    best = max(groups.values(), key=lambda steps: median(step.total.ended / step.window_s for step in steps))
    names = {name for step in best for name in step.operations}
    rates = {
        name: median(step.operations[name].ended / step.window_s if name in step.operations else 0.0 for step in best)
        for name in names
    }
    sizes = of_pieces(scenario.sizes.pieces())
    stored = scenario.objects * sizes.mean
    return Load(per_second=rates, sizes=sizes, read_sizes=sizes, stored_bytes=stored, containers=scenario.containers)
