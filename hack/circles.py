#!/usr/bin/env python3
"""Circles among the modules of a Rust crate, of which there are to be none: modules that use each other, if only
through others, can be understood, tested and moved only together.

    hack/circles.py    exits with 1 when there is one, and says who names whom in it

A module counts as one with its submodules towards its siblings, and the submodules of a module are siblings again. What
a module and its own submodules name of each other is no circle: they are one thing in several files. What is compiled
for tests alone does not count. Only paths are read, no types: who calls a method of a value without naming its type
depends on it unseen.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "native"
Module = tuple[str, ...]
"""A module's path in its crate; the crate itself is `()`."""

TOKEN = re.compile(
    r"""(?P<skipped> \s+ | //[^\n]* | /\*.*?\*/ | '\w+(?!')              # space, comments, lifetimes
        | [bc]?r(?P<fence>\#*)".*?"(?P=fence) | [bc]?"(?:\\.|[^"\\])*"   # text
        | b?'(?:\\.[^']*|[^\\'])' )                                      # characters
      | \w+ | :: | .""",
    re.VERBOSE | re.DOTALL,
)
TEST_ONLY = ["#", "[", "cfg", "(", "test", ")", "]"]


def end_of(tokens: list[str], at: int) -> int:
    """Behind the item that begins here: behind its semicolon or its closing brace."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += (tokens[end] in "([{") - (tokens[end] in ")]}")
        if depth == 0 and tokens[end] in ";}":
            return end + 1
    return len(tokens)


def tokens_of(source: str) -> list[str]:
    """Names and signs, without comments, text, and what is compiled for tests alone."""
    tokens = [match[0] for match in TOKEN.finditer(source) if match["skipped"] is None]
    kept: list[str] = []
    at = 0
    while at < len(tokens):
        if tokens[at : at + len(TEST_ONLY)] == TEST_ONLY:
            at = end_of(tokens, at + len(TEST_ONLY))
        else:
            kept.append(tokens[at])
            at += 1
    return kept


def paths(tokens: list[str], at: int, prefix: Module = ()) -> Iterator[tuple[str, Module]]:
    """The path that begins here, or all those of a tree in braces, each with the name that a `use` gives to it."""
    while tokens[at].isidentifier():
        # `a::{self}` is `a`.
        prefix = prefix if prefix and tokens[at] == "self" else (*prefix, tokens[at])
        if tokens[at + 1] != "::":
            yield tokens[at + 2] if tokens[at + 1] == "as" else prefix[-1], prefix
            return
        at += 2
    if tokens[at] != "{":
        yield tokens[at], prefix  # all of a module's names, or a generic argument
        return
    depth = 0
    for end in range(at, len(tokens)):
        if depth == 1 and tokens[end - 1] in "{," and tokens[end] != "}":
            yield from paths(tokens, end, prefix)
        depth += (tokens[end] == "{") - (tokens[end] == "}")
        if depth == 0:
            return


class Crate:
    """The modules of a crate, as they are declared from its root on, and what each of them names."""

    def __init__(self, src: Path) -> None:
        self.modules: set[Module] = {()}
        self.bound: dict[Module, dict[str, Module]] = defaultdict(dict)
        self.named: dict[Module, list[Module]] = defaultdict(list)
        self.read(src / "lib.rs", src, ())

    def read(self, file: Path, folder: Path, module: Module) -> None:
        """Read a module's file, then those of its submodules, which lie in the folder."""
        tokens = tokens_of(file.read_text())
        blocks = [module]
        for at, token in enumerate(tokens):
            here, before = blocks[-1], tokens[max(at - 2, 0) : at]
            if token == "{":
                blocks.append((*here, before[1]) if before[:1] == ["mod"] else here)
                self.modules.add(blocks[-1])
            elif token == "}":
                blocks.pop()
            elif token == ";" and before[:1] == ["mod"]:
                self.modules.add((*here, before[1]))
                below = folder.joinpath(*here[len(module) :], before[1])
                flat = below.with_suffix(".rs")
                self.read(flat if flat.exists() else below / "mod.rs", below, (*here, before[1]))
            elif token == "use":
                self.bound[here].update((name, self.from_root(here, path)) for name, path in paths(tokens, at + 1))
            if token in {"crate", "super", "self"} and tokens[at + 1] == "::" and before != ["(", "in"]:
                self.named[here] += [self.from_root(here, path) for _, path in paths(tokens, at)]

    @staticmethod
    def from_root(here: Module, path: Module) -> Module:
        """A path as it is written in a module, from the crate's root on."""
        if path[:1] == ("crate",):
            return path[1:]
        while path[:1] in (("self",), ("super",)):
            here = here[:-1] if path[0] == "super" else here
            path = path[1:]
        return here + path

    def owner(self, path: Module, user: Module) -> Module:
        """The module that a path leads into; through the names that a parent of its user has bound."""
        module = next(path[:end] for end in range(len(path), -1, -1) if path[:end] in self.modules)
        target = self.bound[module].get("".join(path[len(module) : len(module) + 1]))
        if target is None or target == path or user[: len(module)] != module:
            return module
        return self.owner(target, user)

    def arrows(self) -> dict[Module, set[Module]]:
        """Which siblings each module names, by itself or in a submodule of it."""
        arrows: dict[Module, set[Module]] = defaultdict(set)
        for user, named in self.named.items():
            for owner in {self.owner(path, user) for path in named}:
                shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(user, owner, strict=False))))
                if shared < min(len(user), len(owner)):
                    arrows[user[: shared + 1]].add(owner[: shared + 1])
        return arrows


def circles(arrows: dict[Module, set[Module]]) -> list[list[Module]]:
    """The groups of modules of which each leads to each other one."""

    def reached(module: Module) -> set[Module]:
        found: set[Module] = set()
        left = [module]
        while left:
            new = arrows.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    reach = {module: reached(module) for module in arrows}
    groups = {frozenset(other for other in to if module in reach.get(other, ())) for module, to in reach.items()}
    return sorted(sorted(group) for group in groups if group)


def problems(src: Path) -> Iterator[str]:
    """Each circle in a crate, with what its modules name of each other; `src` is where its `lib.rs` is."""
    arrows = Crate(src).arrows()
    for circle in circles(arrows):
        names = {module: "::".join((src.parent.name, *module)) for module in circle}
        yield f"a circle of {len(circle)} modules:"
        for module in circle:
            others = sorted(arrows[module] & set(circle))
            yield f"  {names[module]} names {', '.join(names[other] for other in others)}"


def main() -> int:
    """Look at all crates; the exit code."""
    crates = [*sorted(NATIVE.glob("crates/*/src")), NATIVE / "fuzz/src"]
    found = [problem for src in crates for problem in problems(src)]
    print("\n".join(found or [f"no circles among the modules of {len(crates)} crates"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
