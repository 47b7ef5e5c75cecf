"""Usage in the statuses of quotas and users: who is listed, rounding, and how seldom anything is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet_operator.manifests import Manifest
from swiftlet_operator.plan.usage import LISTED, rounded
from swiftlet_operator.reports import AccountsReport, Held, parse_report
from swiftlet_operator.tests.worlds import START, Scene, own, settled

LEVELS = [
    {"name": "default"},
    {"name": "L1", "containerCount": 10, "accountObjectCount": 1000, "accountUsage": "1Mi"},
    {"name": "closed", "accountUsage": "0"},
]
QUOTA = {"levels": LEVELS, "assignments": [{"account": "press", "level": "L1"}, {"account": "old", "level": "closed"}]}
AT = "2027-01-15T08:00:00Z"


def held(**accounts: tuple[int, int, int]) -> dict[str, Held]:
    """Containers, objects and bytes by account."""
    return {f"AUTH_{name}": Held(*counts) for name, counts in accounts.items()}


async def scene_of(**accounts: tuple[int, int, int]) -> Scene:
    """A cluster at rest with a quota and a user, of whose accounts so much is held."""
    scene = await settled()
    scene.kube.put(own("StorageQuota", "levels", QUOTA))
    scene.kube.put(own("StorageUser", "ann", {"account": "press", "user": "ann"}))
    await scene.settle()
    scene.now_s = START
    count(scene, **accounts)
    return scene


def count(scene: Scene, **accounts: tuple[int, int, int]) -> None:
    """Have the accounts counted now."""
    scene.told.accounts["store-container-0"] = AccountsReport(float(scene.now_s), held(**accounts))


def usage(scene: Scene, kind: str = "StorageQuota", name: str = "levels") -> Any:
    """What an object's status tells of usage."""
    return scene.kube.find(kind, name)["status"].get("usage")


async def test_the_fullest_come_first_and_a_user_is_told_of_the_account() -> None:
    scene = await scene_of(
        press=(3, 512, 1234), old=(1, 1, 1), big=(1, 1, 10**15 + 1), other=(2, 77_777, 5), empty=(0, 0, 0)
    )
    await scene.step()
    assert usage(scene) == {
        "countedAt": AT,
        "accounts": [
            {"account": "old", "level": "closed", "containers": 1, "objects": 1, "bytes": 1, "percent": 100},
            {"account": "press", "level": "L1", "containers": 3, "objects": 510, "bytes": 1200, "percent": 51},
            {"account": "big", "level": "default", "containers": 1, "objects": 1, "bytes": 10**15},
            {"account": "other", "level": "default", "containers": 2, "objects": 77_000, "bytes": 5},
            {"account": "empty", "level": "default", "containers": 0, "objects": 0, "bytes": 0},
        ],
    }
    told = {"countedAt": AT, "containers": 3, "objects": 510, "bytes": 1200}
    assert usage(scene, "StorageUser", "ann") == told


async def test_without_news_nothing_is_written_and_with_news_not_at_once() -> None:
    scene = await scene_of(press=(3, 512, 1234))
    assert len(await scene.step()) == 2
    assert await scene.step() == []
    scene.now_s += 10_000
    count(scene, press=(3, 519, 1299))
    assert await scene.step() == []
    count(scene, press=(3, 600, 1299))
    assert len(await scene.step()) == 2
    for _ in range(4):
        scene.now_s += 70
        count(scene, press=(3, scene.now_s % 1000, 1299))
        assert await scene.step() == []
    scene.now_s += 70
    assert len(await scene.step()) == 2
    assert usage(scene)["accounts"][0]["objects"] == rounded((scene.now_s - 70) % 1000)


async def test_the_quota_says_how_long_it_stands() -> None:
    scene = await scene_of(press=(3, 512, 1234))
    scene.kube.find("StorageQuota", "levels")["spec"]["usageSeconds"] = 3600
    await scene.step()
    scene.now_s += 3599
    count(scene, press=(9, 9, 9))
    assert await scene.step() == []
    scene.now_s += 1
    assert len(await scene.step()) == 2


async def test_of_replicas_the_largest_counts_and_only_so_many_are_listed() -> None:
    scene = await scene_of(**{f"a{number:03}": (1, number, 1000) for number in range(LISTED + 9)})
    more = held(a000=(5, 1, 10), a001=(1, 1, 99_000)) | {".hidden": Held(9, 9, 9), "AUTH_" + "x" * 256: Held(9, 9, 9)}
    scene.told.accounts["store-container-1"] = AccountsReport(1e300, more)
    await scene.step()
    listed = usage(scene)["accounts"]
    assert len(listed) == LISTED
    assert [one["account"] for one in listed[:2]] == ["a001", "a000"]
    assert listed[1] == {"account": "a000", "level": "default", "containers": 5, "objects": 1, "bytes": 1000}
    assert usage(scene)["countedAt"] == AT


async def test_what_was_told_stands_while_nobody_says_anything_and_damage_is_mended() -> None:
    scene = await scene_of(press=(3, 512, 1234))
    await scene.step()
    before = usage(scene)
    scene.told.accounts.clear()
    scene.now_s += 10_000
    assert await scene.step() == []
    assert usage(scene) == before
    for damaged in ("soon", 5, "2999-01-01T00:00:00Z"):
        scene.kube.find("StorageQuota", "levels")["status"]["usage"] = {"countedAt": damaged, "accounts": []}
        count(scene, press=(1, 1, 1))
        await scene.step()
        assert usage(scene)["accounts"][0]["objects"] == 1


async def test_nobody_holds_anything() -> None:
    scene = await scene_of()
    assert await scene.step() == []
    assert usage(scene) is None
    assert usage(scene, "StorageUser", "ann") is None


@given(st.integers(0, 2**63))
def test_two_digits(number: int) -> None:
    told = rounded(number)
    assert told <= number < told + max(1, number // 9)
    assert rounded(told) == told
    assert not str(told)[2:].strip("0")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"countedAt": 7.5, "held": {"AUTH_a": [1, 2, 3]}}, AccountsReport(7.5, {"AUTH_a": Held(1, 2, 3)})),
        ({"countedAt": 7, "held": {"a": [1, 2], "b": [1, -2, 3], "c": 5, "d": [1, 2, "3"]}}, AccountsReport(7.0)),
        ({"countedAt": 7, "held": {"a": [10**30, 0, 0]}}, AccountsReport(7.0, {"a": Held(2**63 - 1, 0, 0)})),
        ({"countedAt": 7, "held": []}, AccountsReport(7.0)),
        ({"held": {"a": [1, 2, 3]}}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_report_of_accounts(said: object, expected: AccountsReport | None) -> None:
    body: Manifest = {"service": "container", "accounts": said}
    report = parse_report("container", json.dumps(body).encode())
    assert report is not None
    assert report.accounts == expected
