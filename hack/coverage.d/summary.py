"""Sums up reports of coverage by room or crate, for hack/coverage.

summary.py python REPORT    a report of `coverage json`
summary.py rust REPORT      a report of `llvm-cov export --summary-only`
summary.py binaries         reads cargo's messages and prints the test binaries that they name
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Counts = tuple[int, int, int, int]
"""Lines run, lines, branches (Python) or regions (Rust) run, branches or regions."""


def of_python(report: Mapping[str, Any]) -> Iterable[tuple[str, Counts]]:
    """The counts of each file, by the room that it is in."""
    for name, file in report["files"].items():
        found = re.search(r"(swiftlet(?:_operator)?)/(\w+)(/?)", name)
        if found is None:
            continue
        package, room, folder = found.groups()
        counts = file["summary"]
        yield (
            f"{package}/{room if folder else ''}",
            (
                counts["covered_lines"],
                counts["num_statements"],
                counts.get("covered_branches", 0),
                counts.get("num_branches", 0),
            ),
        )


def of_rust(report: Mapping[str, Any]) -> Iterable[tuple[str, Counts]]:
    """The counts of each file, by its crate."""
    for file in report["data"][0]["files"]:
        found = re.search(r"crates/([\w-]+)/src/", file["filename"])
        if found is None:
            continue
        lines, regions = file["summary"]["lines"], file["summary"]["regions"]
        yield found[1], (lines["covered"], lines["count"], regions["covered"], regions["count"])


def table(found: Iterable[tuple[str, Counts]], second: str) -> str:
    """A line per room or crate, and one for all."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, counts in found:
        for key in (name, "all"):
            sums[key] = [have + more for have, more in zip(sums[key], counts, strict=True)]
    rows = [f"{'':32} {'lines':>16} {second:>16}"]
    for name in sorted(sums, key=lambda name: (name == "all", name)):
        ran, lines, taken, branches = sums[name]
        rows.append(f"{name:32} {_share(ran, lines):>16} {_share(taken, branches):>16}")
    return "\n".join(rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:6.1%} of {whole}" if whole else "-"


def binaries(messages: Iterable[str]) -> Iterable[str]:
    """The executables that cargo built for tests."""
    for line in messages:
        message = json.loads(line)
        if message.get("profile", {}).get("test") and message.get("executable"):
            yield message["executable"]


def main(arguments: list[str]) -> None:
    """Print what the arguments ask for."""
    if arguments == ["binaries"]:
        print("\n".join(binaries(sys.stdin)))
        return
    kind, path = arguments
    report = json.loads(Path(path).read_text("utf-8"))
    print(table(of_python(report), "branches") if kind == "python" else table(of_rust(report), "regions"))


if __name__ == "__main__":
    main(sys.argv[1:])
