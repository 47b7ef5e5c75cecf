"""What holds for all code that meets a client's bytes, by reading that code.

No XML is parsed, no secret is compared with `==`, and no regular expression takes long for any text that fits into a
request.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import swiftlet

ROOT = Path(swiftlet.__file__).parent
FACING = ("swiftlet.api", "swiftlet.auth", "swiftlet.web", "swiftlet.quota", "swiftlet.names")
LONGEST = 8192
"""Characters of a header's value or a request line that get in."""
ALLOWED_S = 0.25
XML = ("xml", "lxml", "defusedxml", "html.parser", "bs4", "xmltodict", "pyexpat")
WRITES_ONLY = "xml.sax.saxutils"
SECRET = re.compile(r"(^|_)(signature|secret|hmac|mac|password|hash|digest|sig)(es|s)?$")


Sources = list[tuple[Path, str]]


@pytest.fixture(scope="module")
def sources() -> Sources:
    """The modules that are installed, and their texts: to parse all of them takes seconds."""
    return [(file, file.read_text()) for file in ROOT.rglob("*.py") if "tests" not in file.parts]


def test_nothing_parses_xml(sources: Sources) -> None:
    """So no entity is expanded, and no document type fetched. What is written is escaped by `saxutils`."""
    for file, text in sources:
        if not any(name in text for name in XML):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                found = any(name == one or name.startswith(one + ".") for one in XML)
                assert not found or name == WRITES_ONLY, f"{file} imports {name}"


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Call):
        yield from _names(node.func)


def test_secrets_are_not_compared_by_equality(sources: Sources) -> None:
    """`hmac.compare_digest` is the one way: its time does not tell how much of a guess was right."""
    folders = {ROOT / "api", ROOT / "auth", ROOT / "grants", ROOT / "transport"}
    compared = 0
    for file, text in sources:
        if not folders & set(file.parents):
            continue
        compared += text.count("compare_digest(")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                for side in (node.left, *node.comparators):
                    for name in _names(side):
                        assert not SECRET.search(name), f"{file}:{node.lineno} compares {name}"
    assert compared >= 4


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    for root in FACING:
        module = importlib.import_module(root)
        names = [root, *(one.name for one in pkgutil.walk_packages(getattr(module, "__path__", []), root + "."))]
        for name in names:
            if ".tests" in name:
                continue
            for key, value in vars(importlib.import_module(name)).items():
                if isinstance(value, re.Pattern):
                    yield f"{name}.{key}", value


HOSTILE = (
    "a",
    " ",
    "0",
    "-",
    ",",
    ".",
    "\t",
    '"',
    "\\",
    "a=",
    "a,",
    "0-",
    "0-0,",
    ' "',
    '\\"',
    "a;",
    ".a",
    "%0",
    "a b",
    ":/",
    "[",
    "<a",
)


def test_there_are_some() -> None:
    assert len(list(patterns())) >= 10


@pytest.mark.parametrize(("name", "pattern"), list(patterns()))
def test_no_regular_expression_takes_long(name: str, pattern: re.Pattern[str] | re.Pattern[bytes]) -> None:
    """Against the longest texts of repeated pieces, with an end that does not fit."""
    for piece in HOSTILE:
        for lead, end in (("", ""), ("", "\x01"), ("bytes=", "x"), ('a; b="', "\x01"), ("W/", "\x01")):
            text = (lead + piece * LONGEST)[:LONGEST] + end
            given = text.encode() if isinstance(pattern.pattern, bytes) else text
            for use in (pattern.match, pattern.search, pattern.fullmatch):
                begun = time.process_time()
                use(given)  # type: ignore[arg-type]
                took = time.process_time() - begun
                assert took < ALLOWED_S, f"{name}.{use.__name__} takes {took:.2f} s for {lead + piece!r}..."


def test_regular_expressions_are_made_in_one_place(sources: Sources) -> None:
    """At the top of a module, where the test above finds them; never from what a client sends."""
    for file, text in sources:
        if not {ROOT / "api", ROOT / "auth", ROOT / "web"} & set(file.parents):
            continue
        tree = ast.parse(text)
        top = {
            id(child) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re":
                allowed = node.attr in {"escape", "Pattern", "Match", "ASCII", "IGNORECASE"} or id(node) in top
                assert allowed, f"{file}:{node.lineno}"
