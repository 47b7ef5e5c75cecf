"""What `hack/check` does with tests that fail: it runs each once more, alone, and names those that pass then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RERUN = Path(__file__).parents[1] / "rerun.sh"
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
"""Of pytest's plugins only what is needed: they take most of the time of a run."""

FAILS_ONCE = """
from pathlib import Path

def test_passes_alone():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("first run")
"""
ALWAYS_FAILS = """
def test_is_broken():
    assert 1 == 2
"""
PASSES = """
def test_is_sound():
    with open("runs", "a") as runs:
        runs.write("x")
"""
RUST_TESTS = """
#[test]
fn passes_alone() {
    let seen = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("seen");
    let before = seen.exists();
    std::fs::write(seen, "").unwrap();
    assert!(before);
}
#[test]
fn is_sound() {}
"""
RUST_BROKEN = """
#[test]
fn is_broken() { assert_eq!(1, 2); }
"""
RUST_ABORTS = """
#[test]
fn aborts() { std::process::abort(); }
"""


def call(folder: Path, call: str) -> tuple[int, str, str]:
    """Call a function of rerun.sh in `folder`; return its exit status, the flaky tests it named, and all it printed."""
    script = f"""
        set -uo pipefail
        say() {{ printf '%s\\n' "$*" >&2; }}
        source {RERUN}
        {call} && status=0 || status=$?
        printf 'flaky: %s\\n' "${{flaky[@]-}}"
        exit "$status"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**inherited, **QUICK, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    named = [line.removeprefix("flaky: ") for line in done.stdout.splitlines() if line.startswith("flaky: ")]
    return done.returncode, "\n".join(named), done.stdout + done.stderr


def write_tests(folder: Path, **tests: str) -> None:
    """Write a pytest project whose test files have these names and contents."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)


def test_a_test_that_passes_alone_is_named_and_the_run_is_green(tmp_path: Path) -> None:
    """The run succeeds, and nothing but the failed test is run again."""
    write_tests(tmp_path, once=FAILS_ONCE, sound=PASSES)
    status, flaky, printed = call(tmp_path, "pytest_with_rerun unit .")
    assert status == 0, printed
    assert flaky == "unit  test_once.py::test_passes_alone"
    assert (tmp_path / "runs").read_text() == "x"


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    """A broken test beside a flaky one leaves the run red."""
    write_tests(tmp_path, once=FAILS_ONCE, broken=ALWAYS_FAILS)
    status, _, printed = call(tmp_path, "pytest_with_rerun unit .")
    assert status == 1, printed


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    """Failures beyond the limit have one cause, and running them again would only take time."""
    many = "import pytest\n@pytest.mark.parametrize('n', range(11))" + FAILS_ONCE.split("import Path\n")[1].replace(
        "def test_passes_alone()", "def test_many(n)"
    ).replace('Path("seen")', "__import__('pathlib').Path(f'seen{n}')")
    write_tests(tmp_path, many=many)
    status, flaky, printed = call(tmp_path, "pytest_with_rerun unit .")
    assert (status, flaky) == (1, ""), printed
    assert "once more" not in printed


def test_a_run_that_collects_nothing_fails(tmp_path: Path) -> None:
    """pytest's status for no tests is passed on."""
    write_tests(tmp_path)
    assert call(tmp_path, "pytest_with_rerun unit .")[0] == 5


def crate(folder: Path, text: str) -> None:
    """Write a Rust package with these tests where `native` is expected."""
    (folder / "native" / "src").mkdir(parents=True)
    manifest = '[package]\nname = "demo"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'
    (folder / "native" / "Cargo.toml").write_text(manifest)
    (folder / "native" / "src" / "lib.rs").write_text(text)


@pytest.mark.parametrize(
    ("text", "green", "named"),
    [
        (RUST_TESTS, True, "rust  passes_alone"),
        (RUST_TESTS + RUST_BROKEN, False, ""),
        (RUST_ABORTS, False, ""),
    ],
    ids=["flaky", "broken", "aborted"],
)
def test_rust_tests_are_run_again_alone(tmp_path: Path, text: str, green: bool, named: str) -> None:
    """A Rust test that passes alone is named; one that fails again, or whose process dies, fails the run."""
    crate(tmp_path, text)
    status, flaky, printed = call(tmp_path, "cargo_test_with_rerun rust")
    assert (status == 0) == green, printed
    assert flaky == named, printed
