"""Scrapes a store on this machine as Prometheus would in a cluster, and breaks it in one way after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from e2e.monitoring.modes import AlertMode, Store
from e2e.monitoring.recording import Recording, Target, over_http
from e2e.standalone.cluster import Cluster

NOTICED_WITHIN_S = 120.0
"""Seconds within which a store notices that it is broken, and that it is whole again."""
VARIABLES = {"$namespace": "data", "$cluster": "lab", "$pool": "main", "$__rate_interval": "5m"}
"""The values that variables of dashboards have here."""
OF_REGIONS = "swiftlet_replicator_region_"
"""Metrics that only a store over several regions has."""


def labels_of(name: str) -> dict[str, str]:
    """The labels that the ServiceMonitor gives to a service of the standalone store."""
    kind = name.rpartition("-")[0] if name[-1].isdigit() else name
    is_replicator = kind.endswith("replicator")
    endpoint = "replicator" if is_replicator else kind if kind in ("object", "container") else "management"
    labels = {"namespace": "data", "swiftlet_cluster": "lab", "pod": f"lab-{name}", "endpoint": endpoint}
    labels |= {"container": kind, "job": "lab", "instance": name}
    return labels | ({"swiftlet_pool": "main"} if kind == "object" or is_replicator else {})


def services_of(cluster: Cluster) -> Iterator[Target]:
    """The metrics of all services."""
    for name in cluster.services:
        yield Target(labels_of(name), over_http(cluster.management_url(name) + "/metrics"))


def asked_for(modes: Sequence[AlertMode], tests: Sequence[pytest.Item]) -> list[AlertMode]:
    """Return the modes that tests ask for by their parameter `mode`; all of them as soon as one test asks for none.

    So some modes can be tried by themselves: `make monitoring PYTEST_ARGS='-k "full and disk"'`.
    """
    params: list[Any] = [getattr(test, "callspec", None) for test in tests]
    named = [None if one is None else one.params.get("mode") for one in params]
    return [mode for mode in modes if None in named or mode in named]


def drive(scene: Store, recording: Recording, modes: Sequence[AlertMode]) -> dict[str, int]:
    """Break and mend the store in each mode; the last minute before each was mended."""
    broken: dict[str, int] = {}
    for mode in modes:
        mode.breaks(scene)
        _wait(scene, recording, mode.shows, mode, "the store has not noticed")
        broken[mode.name] = recording.wait(mode.lasts, mode.minute_s)
        mode.mends(scene)
        _wait(scene, recording, mode.is_over, mode, "the store is not whole again after")
        recording.wait(mode.ends_after, mode.minute_s)
    return broken


def _wait(scene: Store, recording: Recording, until: Callable[[Store], bool], mode: AlertMode, or_else: str) -> None:
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while not until(scene):
        assert time.monotonic() < deadline, f"{or_else}: {mode.name}"
        recording.wait(1, mode.minute_s)
