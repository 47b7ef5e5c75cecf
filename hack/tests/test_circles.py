"""Circles among the modules of a Rust crate: which there are, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.circles import problems


def found(folder: Path, files: dict[str, str]) -> list[str]:
    """The circles in a crate of these files, each followed by who names whom."""
    src = folder / "it" / "src"
    for name, text in files.items():
        file = src / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return list(problems(src))


@pytest.mark.parametrize(
    "named",
    [
        "use crate::b::Two;",
        "use super::b;",
        "use crate::{c::{Three, self}, b::{self as two, Other}};",
        "fn of() -> crate::b::Two { todo!() }",
        "fn of(text: &'static str) -> char { let quote = '\"'; crate::b::two(quote, '\\'') }",
        'const TEXT: &str = r#"a "quoted" // text"#; use crate::b;',
        "#[cfg(test)] mod tests { fn braces() { {} } } use crate::b;",
        "use crate::Two;",
        "mod inner { use super::super::b; }",
    ],
)
def test_two_modules_that_name_each_other_are_a_circle(tmp_path: Path, named: str) -> None:
    files = {"lib.rs": "mod a; mod b; mod c; pub use b::Two;", "a.rs": named, "b.rs": "use crate::a::One;", "c.rs": ""}
    assert found(tmp_path, files) == ["a circle of 2 modules:", "  it::a names it::b", "  it::b names it::a"]


@pytest.mark.parametrize(
    "named",
    [
        "// use crate::b;",
        "/* use crate::b; */",
        'const TEXT: &str = "use crate::b;";',
        "#[cfg(test)] use crate::b;",
        "#[cfg(test)] mod tests { use crate::b; }",
        "#[cfg(test)] mod tests;",
        "pub(in crate::b) fn one() {}",
        "mod b { pub struct Own; } use self::b::Own;",
        "use b::Two; // another crate",
    ],
)
def test_what_is_no_use_of_another_module_is_none(tmp_path: Path, named: str) -> None:
    files = {"lib.rs": "mod a; mod b;", "a.rs": named, "a/tests.rs": "use crate::b;", "b.rs": "use crate::a::One;"}
    assert found(tmp_path, files) == []


def test_a_circle_may_lead_through_others_and_is_named_once(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b; mod c; mod d;",
        "a.rs": "use crate::b;",
        "b.rs": "use crate::c; use crate::d;",
        "c.rs": "use crate::a;",
        "d.rs": "",
    }
    assert found(tmp_path, files) == [
        "a circle of 3 modules:",
        "  it::a names it::b",
        "  it::b names it::c",
        "  it::c names it::a",
    ]


def test_submodules_are_one_with_their_module_and_siblings_of_each_other(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b;",
        "a.rs": "mod one; mod two; use one::One;",
        "a/one.rs": "use super::two::Two; use crate::b;",
        "a/two.rs": "use super::One;",
        "b.rs": "use crate::a::two;",
    }
    assert found(tmp_path, files) == [
        "a circle of 2 modules:",
        "  it::a names it::b",
        "  it::b names it::a",
        "a circle of 2 modules:",
        "  it::a::one names it::a::two",
        "  it::a::two names it::a::one",
    ]


def test_a_module_and_its_own_submodules_may_name_each_other(tmp_path: Path) -> None:
    files = {"lib.rs": "mod a;", "a.rs": "mod one; use self::one::One;", "a/one.rs": "use super::A; use crate::a;"}
    assert found(tmp_path, files) == []
