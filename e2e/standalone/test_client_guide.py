"""The examples of docs/guide/client.md, run as they stand there against a store with all of its processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.standalone.cluster import Cluster, environment

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "client.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = f"""#!/bin/sh
exec {sys.executable} -c 'from swiftlet.client.commands.main import main; main()' "$@"
"""


@pytest.fixture
def variables(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """The environment of the examples, with the `swiftlet` command of the client's wheel first in the path."""
    command = tmp_path / "bin" / "swiftlet"
    command.parent.mkdir()
    command.write_text(COMMAND)
    command.chmod(0o755)
    login = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    return {**environment(), **login, "PATH": f"{command.parent}:{os.environ['PATH']}"}


def test_the_examples_do_what_they_say(variables: dict[str, str], tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [language for language, _ in blocks] == ["sh", "python", "python", "python"]
    for language, text in blocks:
        # The last of them is about fsspec's URLs, which the entry point of an installed wheel makes known.
        known = "import fsspec\nfrom swiftlet.client.filesystem import SwiftletFileSystem\n"
        known += "fsspec.register_implementation('swiftlet', SwiftletFileSystem, clobber=True)\n"
        program = ["bash", "-euo", "pipefail", "-c", text]
        if language == "python":
            program = [sys.executable, "-c", (known if "fsspec" in text else "") + text]
        done = subprocess.run(program, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "back" / "sub" / "2.txt").read_text() == "two\n"
