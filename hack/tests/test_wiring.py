"""Objects get what they work with when they are made: nothing is hung onto them from outside, and frozen is frozen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_LIBRARIES = {
    "services/swiftlet/main/certificates.py: connection.context",
    "services/swiftlet/main/certificates.py: self.context.sni_callback",
}
"""Where the library of TLS asks for it in no other way."""


def production() -> Iterator[Path]:
    for folder in ("services/swiftlet", "operator/swiftlet_operator"):
        for file in (ROOT / folder).rglob("*.py"):
            if not {"tests", "testing"} & set(file.relative_to(ROOT).parts):
                yield file


def is_own(value: ast.expr) -> bool:
    """Whether it is an attribute of `self` or `cls`."""
    if not isinstance(value, ast.Attribute) or not isinstance(value.value, ast.Name):
        return False
    return value.value.id in {"self", "cls"}


def hung_on(tree: ast.AST) -> Iterator[str]:
    """Attributes of other objects that are given functions, and objects whose class is exchanged."""
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if not isinstance(target, ast.Attribute) or is_own(target):
                continue
            assert isinstance(node, ast.Assign)
            # What an object assigns of itself is nearly always a method.
            if isinstance(node.value, ast.Lambda) or is_own(node.value) or target.attr == "__class__":
                yield ast.unparse(target)


def test_nothing_is_hung_onto_objects_from_outside() -> None:
    found = {
        f"{file.relative_to(ROOT).as_posix()}: {target}"
        for file in production()
        for target in hung_on(ast.parse(file.read_text()))
    }
    assert found == OF_LIBRARIES


def test_frozen_objects_are_not_changed() -> None:
    assert [file for file in production() if "object.__setattr__" in file.read_text()] == []


def test_what_it_finds() -> None:
    source = "other.told = self.tell\nother.told = lambda: 1\nserver.__class__ = Raw\nself.told = tell\nother.count = 1"
    assert list(hung_on(ast.parse(source))) == ["other.told", "other.told", "server.__class__"]
