"""`bench.degrade`: a mode as it is measured, on a store with all of its processes; and its page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bench.degrade import peer
from bench.degrade.measuring import measure_on, scenario
from bench.degrade.modes import CONTAINER, MODES, Scene
from bench.degrade.page import render, rows
from bench.degrade.tasks import NEW_DEVICE, NEW_OBJECT, NEW_REPLICATOR, watched_by
from bench.degrade.whole import uses
from bench.peers import openstack
from e2e.standalone.cluster import Cluster
from e2e.standalone.conftest import Stores
from swiftlet.bench.degrade.hand import BROKEN, Acts, Hand
from swiftlet.bench.degrade.phases import PHASES, TASK_PHASES
from swiftlet.bench.degrade.pictures import picture
from swiftlet.bench.degrade.whole import is_whole, status
from swiftlet.bench.results import Result
from swiftlet.bench.runner import Progress
from swiftlet.ring import codec

THINK_S = 0.2
"""Pause of each of the eight clients of a task, which has many requests all the same: it lasts for a minute."""


def test_a_container_server_is_lost_under_load_and_comes_back(
    own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A round takes longer than all of this.
    monkeypatch.setattr("bench.degrade.whole.WHOLE_WITHIN_S", 0.0)
    with ExitStack() as undo:
        found = measure_on(MODES["container"], Scene(own_cluster.data, undo, running=own_cluster), 1.0, 50)
    assert CONTAINER in own_cluster.pids
    assert [(step.mode, step.phase) for step in found.steps] == [("container", phase) for phase in PHASES]
    assert all(step.total.succeeded > 0 and step.points for step in found.steps)
    # Two of three replicas of each database are left.
    assert [step.total.failures for step in found.steps] == [{}, {}, {}]
    assert (found.steps[-1].whole_s, found.steps[-1].is_whole) == (None, False)
    assert [row[1] for row in rows([found])] == list(PHASES)
    page = render([found], {"redis": "it <is> missing"}, scenario(50))
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
    ring = {"misplaced": 0, "behind": 0, "unchecked": 0, "syncedAt": 11.0, "ringVersion": 2}
    reports = [{"devices": {"d1": {"rings": {"object-0": ring, "object-1": {**ring, **change}}}}}]
    assert is_whole(reports, [[None]], 10.0) is whole
    assert not is_whole(reports, [["device"]], 10.0)
    assert not is_whole([], [[None]], 10.0)
    assert is_whole(reports, [[None]], 10.0, {"object-1": 2}) is whole
    assert not is_whole(reports, [[None]], 10.0, {"object-1": 3})


@pytest.fixture
def scene(round_stores: Stores, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A store that is proved, and whose rounds follow each other soon."""
    with round_stores.lent(request) as cluster, ExitStack() as undo:
        cluster.wait_until_proved()
        yield Scene(cluster.data, undo, running=cluster)


def check_task(found: Result) -> None:
    """What is told of any task: each phase has its load, and the second one lasts as long as the task."""
    (mode,) = found.modes
    assert found.modes[mode].is_task
    assert [step.phase for step in found.steps] == list(TASK_PHASES)
    assert all(step.total.succeeded > 0 and step.points for step in found.steps)
    _, during, after = found.steps
    assert after.whole_s is not None
    assert during.window_s >= after.whole_s
    assert [step.ended_early for step in found.steps] == [None, None, None]
    assert [row[-1] for row in rows([found])] == ["", "", f"{after.whole_s:.0f} s"]
    drawn = picture(found, mode)
    assert drawn.startswith("<svg")
    assert "begun at" in drawn
    assert f"whole again after {after.whole_s:.0f} s" in drawn
    assert ">failed<" in drawn
    assert "99th percentile of latency" in drawn


def test_openstack_swift_is_broken_in_every_mode_that_has_a_meaning_for_it() -> None:
    assert peer.MODES.keys() | peer.WITHOUT.keys() == MODES.keys()
    assert not peer.MODES.keys() & peer.WITHOUT.keys()
    assert {kind for mode in peer.MODES.values() for kind in mode.kinds} <= openstack.KINDS.keys()


def test_all_services_are_upgraded_under_load(scene: Scene) -> None:
    before = scene.cluster.pids
    found = measure_on(MODES["upgrade"], scene, 1.0, 50, THINK_S)
    check_task(found)
    after = scene.cluster.pids
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)
    # What fails has not found the only proxy while it was restarted.
    assert [step.total.failures.keys() - {"no connection", "connection closed"} for step in found.steps] == [set()] * 3


def test_a_node_is_added_under_load_and_has_its_share_in_the_end(scene: Scene) -> None:
    before = scene.cluster.pids
    found = measure_on(MODES["rebalance"], scene, 1.0, 50, THINK_S)
    check_task(found)
    assert [step.total.failures for step in found.steps] == [{}, {}, {}]
    # Nothing was restarted, and all services use the new ring.
    assert scene.cluster.pids == before
    ring = codec.load(scene.data / "rings" / "object-0.ring")
    assert {device.name for device in ring.devices if device is not None} == {"d1", "d2", "d3", "d4", NEW_DEVICE}
    versions = dict.fromkeys(("object-0", "object-1"), ring.version)
    assert uses([status(url) for url in scene.management.values()], versions)
    (standing,) = status(scene.added[NEW_REPLICATOR])["devices"].values()
    assert standing["rings"]["object-0"]["held"] > 0
    assert [one["unproved"] for one in status(scene.added[NEW_OBJECT])["devices"].values()] == [None]


def test_an_older_ring_or_none_is_not_what_was_published() -> None:
    assert uses([{"rings": {"object-0": 2, "account": 1}}, {"rings": {"account": 1}}], {"object-0": 2})
    assert not uses([{"rings": {"object-0": 1}}], {"object-0": 2})
    assert not uses([{"rings": {"object-0": None}}], {"object-0": 2})


def test_a_service_with_data_is_waited_for_by_those_who_know_of_them() -> None:
    urls = dict.fromkeys(("object-1", "container-1", "replicator", "metadata", "database-replicator", "proxy"), "")
    assert list(watched_by("object-1", urls)) == list(watched_by("replicator", urls)) == ["object-1", "replicator"]
    assert list(watched_by("container-1", urls)) == list(watched_by("database-replicator", urls))
    assert list(watched_by("container-1", urls)) == ["database-replicator"]
    assert watched_by("proxy", urls) == watched_by("metadata", urls) == {}


def test_a_task_that_fails_ends_the_measuring() -> None:
    def fails() -> None:
        raise AssertionError("it did not come back")

    hand = Hand(Acts(fails, lambda: None, None, is_task=True))
    for _ in range(BROKEN):
        hand.begins()
    hand.at(Progress("run 2 of 3, 8 connections", 0, 0, 0.0, {"succeeded": 0}))
    with pytest.raises(AssertionError, match="it did not come back"):
        hand.end()
    assert hand.has_failed
