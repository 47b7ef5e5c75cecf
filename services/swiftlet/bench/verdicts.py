"""A comparison as a table for a terminal, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from swiftlet.bench.comparison import BETTER, LEVEL, TOO_FEW, WORSE, Row

_COLOURS = {BETTER: "green", WORSE: "red"}


def print_comparison(rows: Sequence[Row], console: Console) -> None:
    """Write the table, and how it was made."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    is_open = any(row.key.per_second is not None for row in rows)
    has_phases = any(row.key.phase for row in rows)
    made.add_column("mode, phase" if has_phases else "rate" if is_open else "clients", justify="right")
    made.add_column("operation")
    made.add_column("figure")
    for title in ("before", "spread", "after", "spread", "ratio", "95 %", "p"):
        made.add_column(title, justify="right")
    made.add_column("verdict")
    for row in rows:
        made.add_row(*_cells(row), style=_COLOURS.get(row.verdict))
    console.print(made)
    console.print(
        "Ratios of medians, after to before; spread: largest less smallest value, by the median; 95 %: bootstrap; "
        f"verdict: two-sided Mann-Whitney test at {LEVEL:.0%} for each row by itself.",
        highlight=False,
        soft_wrap=True,
    )
    if any(row.verdict == TOO_FEW for row in rows):
        console.print(
            "Add runs with `--runs` and `--append`, best in turns: before, after, before, after.", highlight=False
        )


def _cells(row: Row) -> list[str]:
    text = row.figure.text
    return [
        row.key.step,
        row.key.operation,
        row.figure.title,
        text(row.before),
        f"{row.before_spread:.0%}",
        text(row.after),
        f"{row.after_spread:.0%}",
        "-" if row.ratio is None else f"{row.ratio:.3f}",
        "-" if row.interval is None else f"{row.interval[0]:.3f} to {row.interval[1]:.3f}",
        "-" if row.p is None else f"{row.p:.3f}",
        row.verdict,
    ]


def document(row: Row) -> dict[str, Any]:
    """Return a row as plain data."""
    return {
        "phase": row.key.phase,
        "connections": row.key.connections,
        "per_second": row.key.per_second,
        "operation": row.key.operation,
        "figure": row.figure.name,
        "before": row.before,
        "before_spread": row.before_spread,
        "after": row.after,
        "after_spread": row.after_spread,
        "ratio": row.ratio,
        "interval": row.interval,
        "p": row.p,
        "verdict": row.verdict,
    }
