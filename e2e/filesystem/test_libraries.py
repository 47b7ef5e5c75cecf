"""Libraries that people use, over `swiftlet://`, each as a program in an environment with the client's wheel."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.filesystem.conftest import BARE, LIBRARIES

PROGRAMS = sorted(Path(__file__).with_name("programs").glob("*.py"))
WITHIN_S = 600


def has(module: str) -> bool:
    """Whether the environment has a module."""
    return bool(list(LIBRARIES.glob(f"lib/python3*/site-packages/{module}")))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_library(program: Path, wheel: Path, login: Mapping[str, str], tmp_path: Path) -> None:
    if "torch" in program.stem and not has("torch"):
        pytest.skip("torch is not installed: make filesystem TORCH=1")
    done = subprocess.run(
        [LIBRARIES / "bin/python", "-W", "error::ResourceWarning", program],
        env=login,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Unclosed" not in done.stderr


def test_the_wheel_is_enough(wheel: Path, login: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"from a wheel")

    def swiftlet(*arguments: str) -> str:
        done = subprocess.run(
            [BARE / "bin/swiftlet", *arguments],
            env=login,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    swiftlet("cp", "--create", "file", "swift://wheel/")
    assert swiftlet("ls", "swift://wheel") == "file\n"
    assert swiftlet("cat", "swift://wheel/file") == "from a wheel"
    assert "swiftlet" in swiftlet("--version")
    swiftlet("rm", "-rq", "swift://wheel")
