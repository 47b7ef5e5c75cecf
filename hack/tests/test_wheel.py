"""The wheel, which is what the image installs, has the services and the operator, and nothing that only tests use."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOR_TESTS = re.compile(r"(^|/)(tests?|testing|conftest\.py|test_[^/]*)(/|$)")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The paths in a wheel of the working tree, built in a copy: a build takes files that an older one has left."""
    copy, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for file in ("pyproject.toml", "README.md", "LICENSE", "requirements/runtime.in"):
        (copy / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    for folder in ("services", "operator"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(dist)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (wheel,) = dist.glob("swiftlet-*.whl")
    with zipfile.ZipFile(wheel) as content:
        return set(content.namelist())


def modules(of: Path, name: str) -> set[str]:
    """The Python files of a package of the source tree, as paths in a wheel, apart from those that are for tests."""
    paths = (f"{name}/{file.relative_to(of).as_posix()}" for file in of.rglob("*.py"))
    return {path for path in paths if not FOR_TESTS.search(path)}


def test_nothing_of_tests_is_in_the_wheel(shipped: set[str]) -> None:
    assert sorted(path for path in shipped if FOR_TESTS.search(path)) == []


def test_everything_else_is_in_the_wheel(shipped: set[str]) -> None:
    expected = modules(ROOT / "services/swiftlet", "swiftlet")
    expected |= modules(ROOT / "operator/swiftlet_operator", "swiftlet_operator")
    assert len(expected) > 100
    assert sorted(expected - shipped) == []
    assert {"swiftlet/py.typed", "swiftlet_operator/py.typed"} <= shipped
    scenarios = (ROOT / "services/swiftlet/bench/shipped").glob("*.yaml")
    assert {f"swiftlet/bench/shipped/{file.name}" for file in scenarios} <= shipped


def test_no_image_is_built_from_what_only_tests_use() -> None:
    """What `.dockerignore` excludes again; no later line of it lets something in."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for excluded in ("**/tests", "**/testing"):
        assert not any(line.startswith("!") for line in lines[lines.index(excluded) :])
