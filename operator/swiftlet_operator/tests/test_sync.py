"""Who says how a device stands in a ring: the replicator of its pod, and nobody else."""

from __future__ import annotations

import pytest

from swiftlet_operator.plan.sync import ring_report
from swiftlet_operator.reports import DeviceReport, Report
from swiftlet_operator.tests.clusters import cluster
from swiftlet_operator.tests.reporters import IN_SYNC
from swiftlet_operator.world import World

POD, DEVICE = "store-container-0", "store-container-0/db"


def told(service: str, device: str) -> World:
    """A pod in which one service says that one device is in sync in the ring of containers."""
    report = Report(service=service, devices={device: DeviceReport(rings={"container": IN_SYNC})})
    return World(cluster("minimal"), 0, reports={POD: {service: report}})


def test_the_replicator_of_the_pod_tells() -> None:
    assert ring_report(told("replicator", DEVICE), DEVICE, "container") == IN_SYNC
    assert ring_report(told("replicator", DEVICE), DEVICE, "account") is None


@pytest.mark.parametrize(
    ("service", "device"),
    [("container", DEVICE), ("container", "db"), ("replicator", "db"), ("replicator", "other/db")],
)
def test_what_others_tell_proves_nothing(service: str, device: str) -> None:
    assert ring_report(told(service, device), DEVICE, "container") is None
