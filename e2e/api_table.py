"""`docs/swift-api.yaml` as the tables in `docs/swift-api.md`: what the API reference has, and which test shows it.

    make docs                      # or: .venv/bin/python -m e2e.api_table

A test is named by its file and function, `test_slo_put.py::test_a_manifest_becomes_the_whole`; a case of a table in it
by `[its name]`. `e2e/standalone/test_api_table.py` holds all of it against the tests, the code and the description.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "swift-api.yaml"
PAGE = ROOT / "docs" / "swift-api.md"
FOLDERS = (
    "services/swiftlet/api/tests",
    "services/swiftlet/auth/tests",
    "services/swiftlet/quota/tests",
    "services/swiftlet/expiry/tests",
    "services/swiftlet/container_sync/tests",
    "services/swiftlet/servers/tests",
    "services/swiftlet/web/tests",
    "e2e/standalone",
    "e2e/clients",
)
BEGIN, END = "<!-- made by make docs from swift-api.yaml -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """One thing that the reference has."""

    section: str
    what: str
    """`GET object 404`, a header's or parameter's name, or a feature in words."""
    kind: str
    """`status`, `header`, `query` or `feature`."""
    supported: str
    """`yes`, or what there is instead."""
    tests: tuple[str, ...]


def rows() -> Iterator[Row]:
    """Yield the rows of all tables."""
    data: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(DATA.read_text())
    for section, kinds in data.items():
        for kind, entries in kinds.items():
            for what, entry in entries.items():
                tests = entry["test"] if isinstance(entry, dict) else entry
                supported = entry.get("supported", "yes") if isinstance(entry, dict) else "yes"
                yield Row(section, what, kind, supported, (tests,) if isinstance(tests, str) else tuple(tests))


@cache
def sources() -> Mapping[str, str]:
    """The text of every test, its decorators included, by `file::function`; of all files of a name, by that."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).glob("test_*.py")):
            text = file.read_text()
            lines = text.splitlines()
            found[file.name] = found.get(file.name, "") + text
            for name, node in _functions(ast.parse(text)):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found[f"{file.name}::{name}"] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def _functions(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for name, function in _functions(node):
                yield f"{node.name}::{name}", function
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, node


def shows(test: str) -> str | None:
    """The text of the test of that name; None when there is none, or no such case in it."""
    name, _, case = test.partition("[")
    text = sources().get(name)
    if text is None or not case:
        return text
    whole = sources()[name.partition("::")[0]]
    start = whole.find(f'"{case[:-1]}"')
    # A case is a few lines of a table.
    return None if start < 0 else whole[start : start + 300] + text


def render() -> str:
    """Return the tables as Markdown."""
    lines: list[str] = []
    section = ""
    for row in rows():
        if row.section != section:
            section = row.section
            lines += ["", f"### {section}", "", "| | supported | shown by |", "|---|---|---|"]
        what = row.what if row.kind == "feature" else f"`{row.what}`"
        tests = "<br>".join(f"`{test}`" for test in row.tests)
        lines.append(f"| {what} | {row.supported} | {tests} |")
    return "\n".join([BEGIN, *lines, "", END])


def page() -> str:
    """The whole page with the tables in their place."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    return before + render() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
