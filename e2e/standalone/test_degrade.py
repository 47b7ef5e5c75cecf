"""`bench.degrade`: a mode as it is measured, on a store with all of its processes; and its page."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from bench.degrade import measuring
from bench.degrade.measuring import PHASES, is_whole, measure_on
from bench.degrade.modes import CONTAINER, MODES, Scene
from bench.degrade.page import render, rows
from e2e.standalone.cluster import Cluster


def test_a_container_server_is_lost_under_load_and_comes_back(
    own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A round takes longer than all of this.
    monkeypatch.setattr(measuring, "WHOLE_WITHIN_S", 0.0)
    with ExitStack() as undo:
        found = measure_on(MODES["container"], Scene(own_cluster.data, undo, running=own_cluster), 1.0, 50)
    assert CONTAINER in own_cluster.pids
    assert [phase.name for phase in found.phases] == list(PHASES)
    assert all(phase.succeeded > 0 and phase.points for phase in found.phases)
    # Two of three replicas of each database are left.
    assert [phase.failures for phase in found.phases] == [{}, {}, {}]
    assert (found.mode, found.whole_s) == ("container", None)
    assert [row[1] for row in rows([found])] == list(PHASES)
    page = render([found], {"redis": "it <is> missing"}, {"load_average": 1, "processors": 2}, 1.0)
    assert page.count("<svg") == 2
    assert "it &lt;is&gt; missing" in page


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        ({}, True),
        ({"behind": 1}, False),
        ({"unchecked": 2}, False),
        ({"syncedAt": 9.0}, False),
        ({"syncedAt": None}, False),
    ],
)
def test_whole_is_what_has_been_compared_since_with_nothing_left(change: dict[str, Any], whole: bool) -> None:
    ring = {"misplaced": 0, "behind": 0, "unchecked": 0, "syncedAt": 11.0}
    reports = [{"devices": {"d1": {"rings": {"object-0": ring, "object-1": {**ring, **change}}}}}]
    assert is_whole(reports, [[None]], 10.0) is whole
    assert not is_whole(reports, [["device"]], 10.0)
    assert not is_whole([], [[None]], 10.0)
