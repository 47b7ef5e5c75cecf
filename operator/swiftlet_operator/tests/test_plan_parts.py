"""The pure parts of the plan alone: whose turn a restart is, when a volume is lost, what a rebalance waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swiftlet.crd import Condition, Fact
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.plan.lost import _stands_on_lost_node
from swiftlet_operator.plan.rollout import _next
from swiftlet_operator.plan.sync import Published, behind, caught_up, in_order
from swiftlet_operator.plan.tell import events
from swiftlet_operator.plan.workloads import Domain
from swiftlet_operator.reports import SERVING, DeviceReport, Report, RingReport
from swiftlet_operator.status import merge_patch
from swiftlet_operator.tests.clusters import cluster
from swiftlet_operator.world import World


def domain(zone: str, **state: Any) -> Domain:
    """The storage pods of a zone, whole unless told otherwise."""
    return Domain(f"s-{zone}", "storage", zone, 3, state.pop("ready", 3), state.pop("rolling", False), **state)


def turn(changed: str, *domains: Domain) -> str:
    """Whose turn it is, by zone, or of which only pods that are down may be replaced; empty for nobody's."""
    halfway = [one.name for one in domains if one.rolling and one.zone not in {*changed}]
    go, cure, _ = _next([f"s-{zone}" for zone in changed], halfway, {one.name: one for one in domains})
    return go.removeprefix("s-") or cure.replace("s-", "cure ")


WHOLE = {zone: domain(zone) for zone in "abc"}


@pytest.mark.parametrize(
    ("changed", "expected", "states"),
    [
        ("abc", "a", {}),
        ("bc", "a", {"a": {"rolling": True}}),
        ("bc", "a", {"a": {"rolling": True, "held": True}}),
        ("bc", "a", {"a": {"rolling": True, "held": True, "behind": ("s-a-0",)}}),
        ("b", "", {"a": {"rolling": True, "held": True}, "c": {"behind": ("s-c-0",)}}),
        ("bc", "a", {"a": {"rolling": True}, "c": {"behind": ("s-c-0",)}}),
        ("bc", "", {"a": {"down": ("s-a-0",)}}),
        ("bc", "", {"a": {"behind": ("s-a-0",)}}),
        # Trouble first, ...
        ("abc", "b", {"b": {"down": ("s-b-0",)}}),
        ("abc", "b", {"b": {"behind": ("s-b-0",)}}),
        # ... but while another one lacks something, only what nobody misses, ...
        ("abc", "cure b", {"b": {"down": ("s-b-0",)}, "c": {"behind": ("s-c-0",)}}),
        ("abc", "cure a", {"a": {"down": ("s-a-0",)}, "b": {"down": ("s-b-0",)}}),
        ("abc", "cure a", {zone: {"rolling": True, "down": (f"s-{zone}-2",)} for zone in "ab"}),
        # ... even though another has a pod that is broken for good, but not while another is being restarted, ...
        ("bc", "cure b", {"a": {"down": ("s-a-0",)}, "b": {"down": ("s-b-0",)}}),
        ("bc", "", {"a": {"rolling": True}, "b": {"down": ("s-b-0",)}}),
        # ... or tries the newest template, ...
        ("bc", "", {"a": {"rolling": True, "held": True, "down": ("s-a-0",)}, "b": {"down": ("s-b-0",)}}),
        ("bc", "cure b", {"a": {"rolling": True, "held": True}, "b": {"down": ("s-b-0",)}, "c": {"down": ("s-c-0",)}}),
        # ... unless there is nothing to lose.
        ("bc", "cure b", {"a": {"rolling": True}, "b": {"down": ("s-b-0", "s-b-1", "s-b-2"), "ready": 0}}),
        # Who has begun is cured to the end.
        (
            "a",
            "cure b",
            {
                "a": {"down": ("s-a-0",)},
                "b": {"rolling": True, "held": True, "down": ("s-b-0",), "outdated": ("s-b-0", "s-b-1")},
            },
        ),
        # Those too old to report go one by one; one that is new and says nothing stops them.
        ("abc", "a", {zone: {"behind": (f"s-{zone}-0",), "silent": (f"s-{zone}-0",)} for zone in "abc"}),
        ("bc", "", {zone: {"behind": (f"s-{zone}-0",), "silent": (f"s-{zone}-0",)} for zone in "abc"}),
        ("bc", "", {"b": {"behind": ("s-b-0",)}, "c": {"behind": ("s-c-0",)}}),
    ],
)
def test_whose_turn_a_restart_is(changed: str, expected: str, states: dict[str, dict[str, Any]]) -> None:
    assert turn(changed, *(domain(zone, **states.get(zone, {})) for zone in "abc")) == expected


# --- lost volumes -------------------------------------------------------------------------------------------------

NODES = [{"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "zone": "a", "rack": "7"}}}]


def world_with(terms: list[Manifest]) -> tuple[World, Manifest]:
    """A claim that is bound to a volume with these node selector terms."""
    volume = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    world = World(cluster("minimal"), 0, nodes=tuple(NODES), volumes={"v": volume})
    return world, {"metadata": {"name": "d0-p-0"}, "spec": {"volumeName": "v"}}


def on(key: str, *values: str, operator: str = "In") -> Manifest:
    """A term with one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "lost"),
    [
        ([on("kubernetes.io/hostname", "n2")], True),
        ([on("kubernetes.io/hostname", "n1")], False),
        ([on("topology.topolvm.io/node", "n2")], True),
        ([on("openebs.io/nodename", "n2")], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}], False),
        # Of a zone, a rack, or of two nodes of which one is there.
        ([on("topology.kubernetes.io/zone", "b")], False),
        ([on("rack", "8")], False),
        ([on("kubernetes.io/hostname", "n2"), on("kubernetes.io/hostname", "n1")], False),
        ([on("kubernetes.io/hostname", "n2", "n1")], False),
        ([on("kubernetes.io/hostname", "n2"), on("zone", "a")], False),
        # What nobody knows does not make it lost.
        ([on("kubernetes.io/hostname", "n2", operator="Like")], False),
        ([on("kubernetes.io/hostname", operator="Exists")], False),
        ([on("kubernetes.io/hostname", operator="DoesNotExist")], True),
        ([on("kubernetes.io/hostname", "n1", operator="NotIn")], True),
        ([], False),
    ],
)
def test_a_volume_is_lost_when_it_is_bound_to_a_node_that_is_gone(terms: list[Manifest], lost: bool) -> None:
    assert _stands_on_lost_node(*world_with(terms)) is lost


# --- reports ------------------------------------------------------------------------------------------------------

GOOD = RingReport(held=3, misplaced=0, behind=0, unchecked=0, synced_at_s=100.0, ring_version=5)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (GOOD, (True, True)),
        (None, (False, False)),
        (replace(GOOD, synced_at_s=None), (False, False)),
        (replace(GOOD, synced_at_s=99.0), (False, False)),
        (replace(GOOD, ring_version=4), (False, False)),
        (replace(GOOD, ring_version=6), (True, True)),
        (replace(GOOD, behind=1), (False, True)),
        (replace(GOOD, unchecked=1), (False, True)),
        (replace(GOOD, misplaced=1), (False, True)),
        (replace(GOOD, unchecked=None), (False, True)),
    ],
)
def test_in_order_now_and_in_sync_since_then(report: RingReport | None, expected: tuple[bool, bool]) -> None:
    assert (in_order(report, 5, 100.0), caught_up(report, 5, 100.0)) == expected


def test_for_whom_a_rebalance_waits() -> None:
    published = Published("object-0", 5, 100, frozenset({"a/d0", "b/d0", "c/d0"}), dict.fromkeys("abc", "z"))
    published = replace(published, zones={"a/d0": "a", "b/d0": "b", "c/d0": "c"})

    def waits(leaving: set[str], excused: set[str], **reports: RingReport) -> tuple[str, ...]:
        told = {
            pod: {
                "replicator": Report("replicator", devices={f"{pod}/d0": DeviceReport(rings={"object-0": ring})}),
                "object": Report("object", devices={"d0": DeviceReport(state=SERVING)}),
            }
            for pod, ring in reports.items()
        }
        world = World(cluster("minimal"), 0, reports=told)
        return behind(world, published, leaving=leaving, excused=excused)

    alone = replace(GOOD, unchecked=2, synced_at_s=1.0)
    assert waits(set(), set(), a=GOOD, b=GOOD, c=GOOD) == ()
    assert waits(set(), set(), a=alone, b=alone) == ("c/d0", "a/d0", "b/d0")
    assert waits(set(), {"c/d0"}, a=alone, b=alone) == ()
    assert waits({"c/d0"}, set(), a=alone, b=alone) == ()
    assert waits({"c/d0"}, set(), a=alone, b=replace(alone, behind=1)) == ("b/d0",)
    # One that leaves and serves is waited for as long as it has something to hand over.
    assert waits({"c/d0"}, set(), a=GOOD, b=GOOD, c=replace(GOOD, misplaced=1)) == ("c/d0",)
    # Whoever is excused and in order excuses nobody else.
    assert waits(set(), {"c/d0"}, a=alone, b=GOOD, c=GOOD) == ("a/d0",)


def test_a_merge_patch_takes_entries_out() -> None:
    live = {"a": 1, "m": {"x": 1, "y": 2}, "gone": {"z": 1}, "list": [1]}
    wanted = {"a": 1, "m": {"y": 3}, "list": [], "new": {"q": 1}}
    assert merge_patch(live, wanted) == {
        "a": 1,
        "m": {"x": None, "y": 3},
        "gone": None,
        "list": [],
        "new": {"q": 1},
    }


@pytest.mark.parametrize(
    ("reason", "type_"), [("NewKeyAccepted", "Normal"), ("OldKeyForgotten", "Normal"), ("TooManyKeys", "Warning")]
)
def test_only_a_rotation_that_is_stuck_is_a_warning(reason: str, type_: str) -> None:
    one = cluster("minimal")
    before = Condition("KeysRotated", "True", "Current", "", 3, "2026-11-21T00:00:00Z")
    world = World(replace(one, conditions=(before,)), now_s=0)

    found = events(world, [Fact("KeysRotated", "False", reason, "")])

    assert [one.type for one in found if one.reason == reason] == [type_]
