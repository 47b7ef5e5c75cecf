"""What the README and the guide tell people to type on a Kubernetes, typed as it stands there; and `hack/cluster demo`.

The cluster has the image under the name that the chart takes when it is told nothing, and a default StorageClass.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.kubernetes.conftest import RELEASE, SYSTEM
from e2e.kubernetes.kube import Failed, Namespace, eventually, run

ROOT = Path(__file__).parents[2]
SECTION = "## On Kubernetes"
DEMO_WITHIN_S = 900
COMMANDS_WITHIN_S = 900
GONE_WITHIN_S = 240
HERE = Namespace("default")
"""The namespace of a person who names no namespace."""


def commands(document: str) -> str:
    """The console blocks before the first subsection, as a script that ends at the first command that fails."""
    section = re.split(r"\n##+ ", (ROOT / document).read_text().split(f"{SECTION}\n", 1)[1], maxsplit=1)[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    assert blocks, f"{document} has commands in its section {SECTION}"
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return "\n".join(["set -euo pipefail", *lines])


def clean() -> None:
    """Nothing of the README's store, and no release."""
    with suppress(Failed):
        HERE.kubectl(
            "patch", "storagecluster", "photos", "--type=merge", '--patch={"spec": {"deletionPolicy": "Delete"}}'
        )
    with suppress(Failed):
        HERE.kubectl("delete", "storageuser,storagecluster", "--all", "--timeout", f"{GONE_WITHIN_S}s")
    with suppress(Failed):
        run("helm", "uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
    eventually("the store's pods go", GONE_WITHIN_S, _pods)


def _pods() -> str | None:
    return ", ".join(one["metadata"]["name"] for one in HERE.list("pods")) or None


@pytest.fixture
def fresh() -> Iterator[None]:
    """A cluster without the chart and without a store, afterwards too."""
    if "KUBECONFIG" not in os.environ:
        pytest.skip("KUBECONFIG is not set; run `make e2e`")
    clean()
    try:
        yield
    finally:
        if not os.environ.get("KEEP"):
            clean()


def typed(script: str, within_s: float) -> str:
    """Run the commands, return their output, and end the processes that they left running."""
    environ = os.environ | {"PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-c", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wrote, _ = process.communicate(timeout=within_s)
    assert process.returncode == 0, wrote
    return wrote


def test_the_demo_stores_a_file(fresh: None) -> None:
    wrote = typed("hack/cluster demo", DEMO_WITHIN_S)
    for step in range(1, 6):
        assert re.search(rf"\[{step}/5\] .*: done in \d+ (s|min)", wrote), wrote
    assert "http://127.0.0.1:8080/auth/v1.0" in wrote
    assert "press:alice" in wrote
    assert "hack/cluster down" in wrote


def test_the_readme_s_commands_store_a_file(fresh: None) -> None:
    wrote = typed(commands("README.md"), COMMANDS_WITHIN_S)
    assert wrote.endswith((ROOT / "README.md").read_text()), f"the file comes back at the end: {wrote}"


def test_the_guide_s_commands_make_a_store(fresh: None) -> None:
    wrote = typed(commands("docs/guide/install.md"), COMMANDS_WITHIN_S)
    assert re.search(r"storagecluster\S*/photos condition met", wrote), wrote
    assert re.search(r"Name: +photos", wrote), wrote
