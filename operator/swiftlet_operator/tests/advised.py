"""What `swiftlet advise` prints for the workloads of the examples, and for others that lead to every arrangement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swiftlet.advice.arrangements import plans
from swiftlet.advice.costs import shipped
from swiftlet.advice.manifests import manifests
from swiftlet.main.commands.advise.workload_file import read_workload

WORKLOADS = sorted((Path(__file__).parents[3] / "examples" / "workloads").glob("*.yaml"))


def advised(path: Path) -> list[list[dict[str, Any]]]:
    """The custom resources of the best way and of all others, for a workload."""
    given = read_workload(path)
    found = plans(given.load(), given.store_of(), shipped(), given.rules())
    return [manifests(plan, "store") for plan in found]
