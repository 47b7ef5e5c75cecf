"""Objects with erasure coding: `FragmentsWhole` is True by proof alone, and says of how many what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swiftlet_operator.plan.fragments import OLD_S
from swiftlet_operator.plugin import render
from swiftlet_operator.plugin.findings import findings
from swiftlet_operator.plugin.picture import Picture
from swiftlet_operator.redundancy import Repairs, Standing, left_said, parsed, said, together
from swiftlet_operator.reports import parse_report
from swiftlet_operator.tests.worlds import START, Scene, settled

TYPE = "FragmentsWhole"
PODS = ("store-disks-0", "store-disks-1", "store-disks-2")


def fields(seen_at_s: float = START, left: int = 0, whole_at_s: float | None = None, **stands: int) -> dict[str, Any]:
    """Return the field of a status report; `stands` are partitions by `f6` for six fragments, and `short`."""
    partitions = {name.removeprefix("f"): count for name, count in stands.items()}
    policy = {"seenAt": seen_at_s, "data": 4, "parity": 2, "partitions": partitions, "objects": {}}
    return {"left": left, "wholeAt": whole_at_s, "redundancy": {"cold": policy}}


def repairs(**about: Any) -> Repairs:
    """Return what is parsed from such a field."""
    found = parsed(fields(**about))
    assert found is not None
    return found


async def told(*reports: Repairs | None) -> Scene:
    """Return a cluster whose replicators say these things, by pod; None for nothing of repairs."""
    scene = await settled()
    assert scene.condition(TYPE) == ("False", "NotWanted")
    scene.told.repairs = {pod: report for pod, report in zip(PODS, reports, strict=True) if report is not None}
    await scene.step()
    return scene


async def test_all_is_whole_when_all_replicators_have_proved_it() -> None:
    scene = await told(*(repairs(seen_at_s=START + 900, f6=count) for count in (10, 0, 4)))
    assert scene.condition(TYPE) == ("True", "Whole")
    assert scene.message(TYPE) == "policy cold: 14 partitions have 6 of 6 fragments of each object"
    assert await scene.step() == []


async def test_a_replicator_that_says_nothing_or_long_ago_leaves_it_unknown() -> None:
    scene = await told(repairs(f6=10), None, repairs(f6=4))
    assert scene.condition(TYPE) == ("Unknown", "NotReported")
    assert "store-disks-1 has not reported" in scene.message(TYPE)
    scene.told.repairs["store-disks-1"] = repairs(f6=3, seen_at_s=scene.now_s - OLD_S - 900)
    await scene.step()
    assert scene.condition(TYPE) == ("Unknown", "NotReported")
    scene.told.repairs["store-disks-1"] = repairs(f6=3, seen_at_s=scene.now_s)
    for pod in ("store-disks-0", "store-disks-2"):
        scene.told.repairs[pod] = repairs(f6=3, seen_at_s=scene.now_s)
    await scene.step()
    assert scene.condition(TYPE) == ("True", "Whole")
    scene.told.silent.add("store-disks-2")
    await scene.step()
    assert scene.condition(TYPE) == ("Unknown", "NotReported")


@pytest.mark.parametrize(
    ("reports", "reason", "message"),
    [
        (
            [{"f6": 4}, {"f6": 3, "f5": 1, "left": 7}, {"f6": 1}],
            "FragmentsMissing",
            "policy cold: 8 partitions have 6 of 6 fragments of each object, 1 has 5; 7 records are left to repair",
        ),
        (
            [{"f6": 4}, {"f4": 2}, {"f5": 1}],
            "NoneToSpare",
            "4 partitions have 6 of 6 fragments of each object, 1 has 5",
        ),
        ([{"f6": 4}, {"f4": 2, "short": 1}, {}], "TooFewFragments", "2 have 4, 1 has fewer than 4"),
        ([{"f6": 4}, {"f6": 2, "left": 1}, {}], "FragmentsMissing", "1 records are left to repair"),
    ],
)
async def test_what_is_missing_is_told_as_soon_as_one_knows_of_it(
    reports: list[dict[str, int]], reason: str, message: str
) -> None:
    scene = await told(*(repairs(**about) for about in reports))
    assert scene.condition(TYPE) == ("False", reason)
    assert message in scene.message(TYPE)
    found = [one.text for one in findings(Picture(scene.cluster)) if TYPE in one.text]
    assert len(found) == 1


def test_the_plugin_shows_where_policies_stand_and_what_is_left() -> None:
    reports: dict[tuple[str, str], dict[str, Any]] = {
        ("store-disks-0", "replicator"): {"repairs": fields(f6=4, f5=2, left=30, whole_at_s=START + 500)},
        ("store-disks-1", "replicator"): {"repairs": fields(f6=3)},
        ("store-disks-2", "replicator"): {"repairs": None},
        ("store-disks-2", "object"): {},
    }
    cluster = {"metadata": {"name": "store", "namespace": "data"}, "spec": {}}
    picture = Picture(cluster, reports=reports, now_s=START)
    lines = [
        "policy cold: 7 partitions have 6 of 6 fragments of each object, 2 have 5",
        "30 records are left to repair, for about 8 minutes",
    ]
    assert render.fragments(picture) == lines
    assert set(lines) <= {line.strip() for line in render.status(picture)}
    assert render.fragments(Picture(cluster)) == []


def test_a_rate_that_one_replicator_does_not_know_is_not_known() -> None:
    first, second = repairs(left=3, whole_at_s=START + 100.0), repairs(left=4, whole_at_s=START + 300.0)
    assert together([first, second]).whole_at_s == START + 300
    assert left_said(together([first, second]), START) == "7 records are left to repair, for about 5 minutes"
    assert together([first, repairs(left=4), second]).whole_at_s is None
    assert together([first, repairs()]).whole_at_s == START + 100


@pytest.mark.parametrize(
    ("seconds", "text"), [(10, "2 minutes"), (3000, "50 minutes"), (8000, "2 hours"), (1e7, "100 days")]
)
def test_times_are_told_by_one_digit(seconds: float, text: str) -> None:
    assert left_said(repairs(left=2, whole_at_s=START + seconds), START).endswith(f"for about {text}")


def test_damaged_reports_are_left_out() -> None:
    good = fields(f6=4)
    policy = good["redundancy"]["cold"]
    damages: list[dict[str, Any]] = [
        {"data": 0},
        {"data": "4"},
        {"parity": None},
        {"data": 30, "parity": 30},
        {"seenAt": None},
        {"seenAt": float("inf")},
        {"partitions": None},
        {"partitions": []},
    ]
    for wrong in damages:
        assert parsed(good | {"redundancy": {"cold": policy | wrong}}) == Repairs()
    others: list[object] = [None, [], 3, {}, {"redundancy": {"cold": 3}}, {"redundancy": []}]
    for wrong_field in others:
        assert parsed(wrong_field) in (None, Repairs())
    strange = parsed(good | {"left": -1, "wholeAt": 10**400, "redundancy": {"x" * 999: policy}})
    assert strange is not None
    assert (strange.left, strange.whole_at_s, len(next(iter(strange.policies)))) == (0, None, 64)
    counts = parsed(
        good | {"redundancy": {"cold": policy | {"partitions": {"6": True, "5": -3, "99": 4, "4": 10**30}}}}
    )
    assert counts is not None
    assert dict(counts.policies["cold"].partitions) == {"4": 2**53, "5": 0, "6": 0, "short": 0}
    report = parse_report("replicator", json.dumps({"service": "replicator", "repairs": good}).encode())
    assert report is not None
    assert report.repairs == parsed(good)


def test_a_policy_without_objects_says_so() -> None:
    assert said(Standing(4, 2, {}, START)) == "it has no objects"
