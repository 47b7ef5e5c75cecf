"""`hack/flaky` names what fails now and then, leaves nothing running, and is content with what never fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil

FLAKY = Path(__file__).parents[1] / "flaky"
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
"""Of pytest's plugins only what is needed: they take most of the time of a run."""
FAILS_EVERY_OTHER_TIME = """
from pathlib import Path

def test_now_and_then():
    seen = Path(__file__).with_suffix(".seen")
    if seen.exists():
        seen.unlink()
    else:
        seen.touch()
        raise AssertionError("first run")

def test_sound():
    pass
"""


def flaky(file: Path, runs: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **QUICK, "RUNS": str(runs), "BUSY": "1"}
    return subprocess.run([FLAKY, str(file)], env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_a_test_that_fails_now_and_then_is_named(tmp_path: Path) -> None:
    file = tmp_path / "test_one.py"
    file.write_text(FAILS_EVERY_OTHER_TIME)
    done = flaky(file, 3)
    assert done.returncode == 1
    (named,) = [line.split() for line in done.stderr.splitlines() if "FLAKY" in line]
    assert (named[1], named[2].rpartition("::")[2]) == ("2", "test_now_and_then")
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(FLAKY) in (one.info["cmdline"] or [])]


def test_sound_tests_are_green(tmp_path: Path) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("def test_sound():\n    pass\n")
    done = flaky(file, 2)
    assert (done.returncode, "no test failed" in done.stderr) == (0, True), done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = flaky(tmp_path / "test_none.py", 1)
    assert done.returncode == 1
    assert "there is no file" in done.stderr
