"""Where helm is; without it the tests that render are left out, with a word."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest


def find_helm(environ: Mapping[str, str] = os.environ) -> str | None:
    """The helm on the path, or the one that `hack/cluster setup` built."""
    home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/")) / ".cache"
    cache = environ.get("SWIFTLET_KUBE_CACHE") or Path(home) / "swiftlet" / "kube"
    return shutil.which("helm") or shutil.which(Path(cache) / "bin" / "helm")


@pytest.fixture(scope="session")
def helm() -> str:
    """The program."""
    found = find_helm()
    if found is None:
        pytest.skip("helm is not installed; `hack/cluster setup` builds it")
    return found
