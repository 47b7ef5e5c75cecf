"""Results as a table for a terminal, with what a reader has to know beside it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from rich.console import Console
from rich.table import Table

from swiftlet.bench.figures import ALL, Figure, Key, key_of, keys, operations, shown, values
from swiftlet.bench.results import CANCELLED, Result, StepResult
from swiftlet.units import number_text, size_text, time_text

BUSY_SHARE = 0.7
"""From this share of a processor on, the generator may be what limits a result."""
COSTLY_SHARE = 0.1
"""From this share of the processor time of what it measures on, the generator's own is worth a word."""
_LATE_S = 0.001


def print_result(result: Result, console: Console) -> None:
    """Write the table and the notes."""
    console.print(f"[bold]{result.scenario['title']}[/bold]  {result.target}", highlight=False)
    console.print(table(result))
    for note in notes(result):
        console.print(note, highlight=False, soft_wrap=True)


def table(result: Result) -> Table:
    """Return a row for each step and operation; of several runs the median of each figure."""
    rows, figures, title = shown(result)
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column(title, justify="left" if result.modes else "right")
    made.add_column("operation")
    for figure in figures:
        made.add_column(figure.title, justify="right")
    for key in rows:
        made.add_row(key.step, key.operation, *[cell(result, key, figure) for figure in figures])
    return made


def cell(result: Result, key: Key, figure: Figure) -> str:
    """Return the median of a figure over all runs as text, `-` when there is none."""
    found = values(result, key, figure)
    return figure.text(median(found)) if found else "-"


def notes(result: Result) -> list[str]:
    """Return what a reader has to know to believe the table."""
    found = []
    if result.is_cut_short:
        found.append("Cut short by Ctrl-C: the last step is not complete.")
    if result.runs > 1:
        found.append(f"Medians of {result.runs} runs.")
    found += [f"Worker lost: {one}. Steps from then on are of the other workers." for one in result.lost]
    for step in result.steps:
        if step.mode:
            found += _phase_notes(result, step)
        elif step.run == 1:
            found.append(_step_note(step))
    early = sorted({step.ended_early for step in result.steps if step.ended_early and step.ended_early != CANCELLED})
    found += [f"A step ended early: {reason}." for reason in early]
    found += _failure_notes(result)
    found += _comparing_notes(result)
    found += _generator_notes(result)
    return found


def _phase_notes(result: Result, step: StepResult) -> Iterator[str]:
    """Tell what the figures of a phase don't: that its mode took longer than it, and what was not so in time."""
    phase, mode = key_of(step, ALL).phase, result.modes[step.mode]
    run = f" (run {step.run})" if result.runs > 1 else ""
    if step.act_s is not None and step.act_s > mode.seconds and not mode.is_task:
        yield f"{phase}{run}: the command took {step.act_s:.0f} s, longer than the phase; raise its seconds."
    if step.is_whole is False:
        yield f"{phase}{run}: redundancy was not complete in time."


def _step_note(step: StepResult) -> str:
    text = f"{key_of(step, ALL).step}: "
    if not step.window_s:
        return f"{text}nothing was measured"
    text += f"{size_text(step.moved_bytes / step.window_s)}/s in {step.window_s:.1f} s"
    if step.workers > 1:
        text += f", {step.workers} workers"
    if step.per_second is None:
        rates = number_text(step.workers_operations_per_s), size_text(step.workers_bytes_per_s)
        text += f"; sum of connections' own rates (COSBench): {rates[0]} op/s, {rates[1]}/s"
    if step.usage is not None and step.all_succeeded:
        usage = step.usage
        text += (
            f"; processes under test: {time_text(usage.cpu_s / step.all_succeeded)} of processor time per operation, "
            f"{size_text(usage.rss_bytes)} of memory"
        )
        if usage.written_bytes is not None and usage.read_bytes is not None:
            text += f", {size_text(usage.read_bytes)} read from disks, {size_text(usage.written_bytes)} written"
    return text


def _failure_notes(result: Result) -> list[str]:
    counts: dict[tuple[str, str], list[int]] = {}
    examples: dict[tuple[str, str], str] = {}
    for key in keys(result):
        if key.operation == ALL:
            continue
        for _, operation in operations(result, key):
            for kind, failures in operation.failures.items():
                counts.setdefault((key.phase, kind), []).append(failures.count)
                examples.setdefault((key.phase, kind), failures.example)
    return [
        f"{f'{place[0]}: failed' if place[0] else 'Failed'}: {sum(count):,} times {place[1]}, such as {examples[place]}"
        for place, count in counts.items()
    ]


def _comparing_notes(result: Result) -> Iterator[str]:
    """Tell how many reads were compared, when that is not all of them."""
    reads = [step.operations["read"] for step in result.steps if "read" in step.operations]
    succeeded, compared = sum(one.succeeded for one in reads), sum(one.compared or 0 for one in reads)
    if compared < succeeded and all(one.compared is not None for one in reads):
        yield (
            f"Of {succeeded:,} reads, the bytes of {compared:,} were compared with what was written, and of the others "
            "the size."
        )


def _generator_notes(result: Result) -> list[str]:
    found: list[str] = []
    if over_http := sum(step.over_http for step in result.steps):
        found.append(f"{over_http:,} requests for objects went over HTTP, in place of going directly to the devices.")
    steps = [step for step in result.steps if step.all_succeeded]
    if not steps:
        return found
    operations_ = sum(step.all_succeeded for step in steps)
    cpu_s = sum(step.generator_cpu_s for step in steps)
    text = f"The generator took {time_text(cpu_s / operations_)} of processor time per operation"
    used = sum(step.usage.cpu_s for step in steps if step.usage is not None)
    if used:
        text += f", {cpu_s / used:.1%} of what it measured"
        if cpu_s > COSTLY_SHARE * used:
            text += ": on the same machine that is part of the result"
    found.append(text + ".")
    busiest = max(step.generator_busiest for step in steps)
    if busiest > BUSY_SHARE:
        found.append(
            f"A thread of the generator had a processor {busiest:.0%} of the time: it may be the limit. "
            "Raise `threads`, or give it processors of its own."
        )
    late = max((step.lateness.quantile_s(0.99) or 0.0 for step in steps), default=0.0)
    if late > _LATE_S:
        found.append(f"The generator began operations up to {time_text(late)} late (99th percentile), which counts.")
    return found
