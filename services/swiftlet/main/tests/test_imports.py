"""Servers of objects and of containers import nothing that only proxies need: each of their pods would keep it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("service", ["object", "container"])
def test_they_do_without_the_swift_api(service: str) -> None:
    program = (
        f"import sys, swiftlet.main.services.{service}\n"
        "found = [name for name in sys.modules if name.startswith(('swiftlet.api', 'swiftlet.front'))]\n"
        "assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
