"""Rules of the house that no linter knows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE_SUFFIXES = {".py", ".pyi", ".rs", ".sh", ".toml", ".yaml", ".yml", ".tpl", ""}
MAX_LINES = 1000
UNDIVIDED = ("crds/", "charts/swiftlet/files/crds/", "operator/swiftlet_operator/tests/golden/")
"""A custom resource definition is one object, which can't be divided; golden files are written by programs."""
MAX_LINES_UNDIVIDED = 2100

# The patterns' own text does not match them: an escaped dot is no dot.
DOCSTRING = re.compile(r'(?:\s*#.*\n|\s*\n)*[rR]?"""\s*[^\s"]')
"""The beginning of a module that has one: whether it is valid Python is for others to say."""
PACKAGE_REGISTRY = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|crates\.io|npmjs\.org|proxy\.golang\.org|maven\.org|maven\.apache\.org|deb\.debian\.org)\b"
)
MACHINE_PATH = re.compile(r"(?<![\w.$}~<-])/(?:work|root|home|opt/wheels)/[\w.]")


def committed_files() -> list[Path]:
    """The files that git knows and that are still there."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str:
    """The text of a file, empty if it is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def name_of(path: Path) -> str:
    """A file's name as git has it."""
    return path.relative_to(ROOT).as_posix()


def lines_that_match(pattern: re.Pattern[str], path: Path) -> list[str]:
    """`file:line: text` of each line that has the pattern in it."""
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_operators_folder_does_not_hide_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    # pytest would import a module or a tests folder right below it as part of a package called `operator`.
    assert not list((ROOT / "operator").glob("*.py"))
    assert not (ROOT / "operator" / "tests").exists()

    run = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not Path(run.stdout.strip()).is_relative_to(ROOT / "operator")


def test_every_module_says_what_it_is_for() -> None:
    silent = []
    for path in committed_files():
        text = text_of(path)
        # A tests package needs no more than its name.
        if path.suffix not in {".py", ".pyi"} or (not text and path.parent.name == "tests"):
            continue
        if not DOCSTRING.match(text):
            silent.append(name_of(path))
    assert silent == []


def test_no_file_names_a_package_registry() -> None:
    # Where packages come from is the business of the machine that installs them. (Cargo writes the
    # registry's name into its lock file and offers no way around it.)
    assert [
        line
        for path in committed_files()
        if path.name != "Cargo.lock"
        for line in lines_that_match(PACKAGE_REGISTRY, path)
    ] == []


def test_no_file_names_a_path_of_someones_machine() -> None:
    assert [line for path in committed_files() for line in lines_that_match(MACHINE_PATH, path)] == []


def test_no_source_file_is_too_long_to_read() -> None:
    lengths = {
        name_of(path): len(text_of(path).splitlines())
        for path in committed_files()
        if path.suffix in SOURCE_SUFFIXES and path.name != "LICENSE"
    }
    assert {name: lines for name, lines in lengths.items() if lines > _most_lines(name)} == {}


def _most_lines(name: str) -> int:
    return MAX_LINES_UNDIVIDED if name.startswith(UNDIVIDED) else MAX_LINES


def test_every_dependency_has_a_reason_and_every_reason_a_dependency() -> None:
    asked_for = set()
    for path in (ROOT / "requirements").glob("*.in"):
        lines = path.read_text(encoding="utf-8").splitlines()
        asked_for |= {re.split(r"[\[<>=~!; ]", line)[0] for line in lines if line and line[0] not in "#-"}
    crates = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["dependencies"]
    for name, crate in crates.items():
        if isinstance(crate, str) or "path" not in crate:
            asked_for.add(crate.get("package", name) if isinstance(crate, dict) else name)

    table = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| ([\w-]+) \|", table, re.MULTILINE)) - {"package", "crate"}

    assert explained == asked_for


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (PACKAGE_REGISTRY, "index = https://" + "pypi" + ".org/simple", True),
        (PACKAGE_REGISTRY, "kubernetes" + ".io/name: swiftlet", False),
        (MACHINE_PATH, "cd " + "/home" + "/someone/swiftlet", True),
        (MACHINE_PATH, "cd " + "/root" + "/.cache", True),
        (MACHINE_PATH, "data/home" + "/photos", False),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], line: str, found: bool) -> None:
    assert bool(pattern.search(line)) is found
