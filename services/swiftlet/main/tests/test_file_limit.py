"""Services may open as many files as the system allows them, whatever they were started with."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

_PRINT = """
import resource
from swiftlet.main.file_limit import allow_many_files
allow_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard"), [(256, 600), (600, 600)])
def test_the_soft_limit_becomes_the_hard_one(soft: int, hard: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["600", "600"]
