"""Restarts as a whole: paused, in time or not, and of how many clusters at a time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from swiftlet.crd.conditions import rfc3339
from swiftlet.errors import SettingsError
from swiftlet_operator.main import options_of
from swiftlet_operator.reconcile import Key
from swiftlet_operator.reports import RingReport
from swiftlet_operator.tests import worlds
from swiftlet_operator.tests.worlds import KEY, Scene
from swiftlet_operator.turns import UNLIMITED, Turns

MINUTE = 60
LATE = RingReport(held=1, misplaced=0, behind=3, unchecked=0, ring_version=1, synced_at_s=1.0)
OTHERS = [Key("data", "second"), Key("data", "third")]


async def settled(spec: str = "three-zones", turns: Turns | None = None) -> Scene:
    scene = await worlds.settled(spec)
    if turns is not None:
        object.__setattr__(scene.reconciler, "turns", turns.of)
        await scene.step()
    return scene


async def changed(scene: Scene) -> set[str]:
    """Workloads that one reconcile changed."""
    return {one.partition("/")[2] for one in await scene.step() if "StatefulSet" in one or "Deployment" in one}


def moment(scene: Scene) -> str:
    return rfc3339(datetime.fromtimestamp(scene.now_s, UTC))


def bring_up(scene: Scene, name: str, *, ready: bool, waiting: str = "") -> None:
    """What becomes of the restarted pods of a StatefulSet: made now, and ready or not."""
    live = scene.kube.find("StatefulSet", name)
    pods = [scene.kube.find("Pod", pod) for pod in scene.kube.names("Pod") if pod.rpartition("-")[0] == name]
    broken = pods[-1:] if not ready else []
    for pod in pods:
        ok = pod not in broken
        pod["metadata"]["creationTimestamp"] = moment(scene)
        condition = {"type": "Ready", "status": "True" if ok else "False", "lastTransitionTime": moment(scene)}
        pod["status"] = {"conditions": [condition]}
        if not ok and waiting:
            state = {"waiting": {"reason": waiting, "message": "no such image"}}
            pod["status"]["containerStatuses"] = [{"name": "object", "ready": False, "state": state}]
    live["status"] |= {
        "observedGeneration": live["metadata"]["generation"],
        "updateRevision": "r2",
        "currentRevision": "r2" if ready else "r",
        "updatedReplicas": len(pods) if ready else 1,
        "readyReplicas": len(pods) - len(broken),
    }


async def test_a_bad_image_stops_at_one_pod_and_is_told_after_the_timeout() -> None:
    scene = await settled()
    scene.cluster["spec"]["upgrade"] = {"timeoutSeconds": 10 * MINUTE}
    scene.cluster["spec"]["image"] = "swiftlet:bad"
    assert "store-fast-a" in await changed(scene)
    bring_up(scene, "store-fast-a", ready=False, waiting="ImagePullBackOff")
    assert not {one for one in await changed(scene) if one != "store-fast-a"}
    assert scene.condition("Progressing") == ("True", "RollingOut")

    scene.now_s += 11 * MINUTE
    assert await changed(scene) == set()
    assert scene.condition("Progressing") == ("False", "UpgradeTimedOut")
    assert "object: ImagePullBackOff no such image" in scene.message("Progressing")
    assert "store-fast-a-" in scene.message("Progressing")
    assert scene.clusters._shown["data", "store"].upgrade_timed_out
    events = [one for (kind, *_), one in scene.kube.objects.items() if kind == "Event"]
    assert any(one["type"] == "Warning" and one["reason"] == "UpgradeTimedOut" for one in events)

    # The cure goes to the domain in trouble first, and then on.
    scene.cluster["spec"]["image"] = "swiftlet:good"
    assert {one for one in await changed(scene) if "store-fast" in one} == {"store-fast-a"}
    bring_up(scene, "store-fast-a", ready=True)
    assert {one for one in await changed(scene) if one.startswith(("store-fast", "store-cont"))} == {"store-fast-b"}
    assert scene.condition("Progressing") == ("True", "RollingOut")
    assert not scene.clusters._shown["data", "store"].upgrade_timed_out


async def test_who_is_ready_and_not_in_sync_is_told_and_waited_for_unless_the_spec_says_not() -> None:
    scene = await settled()
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await changed(scene)
    bring_up(scene, "store-fast-a", ready=True)
    pods = {one for one in scene.kube.names("Pod") if one.startswith("store-fast-a-")}
    scene.told.said = {(f"{pod}/d{disk}", "object-0"): LATE for pod in pods for disk in range(2)}
    scene.now_s += 31 * MINUTE
    assert not [one for one in await changed(scene) if one.startswith("store-fast")]
    assert scene.condition("Progressing") == ("False", "UpgradeTimedOut")
    assert "is ready and has not been in sync since" in scene.message("Progressing")

    scene.cluster["spec"]["upgrade"] = {"continueAfterTimeout": True}
    assert "store-fast-b" in await changed(scene)


async def test_no_restart_goes_past_a_pod_that_is_not_ready() -> None:
    scene = await settled()
    scene.cluster["spec"]["upgrade"] = {"continueAfterTimeout": True}
    scene.cluster["spec"]["image"] = "swiftlet:bad"
    await changed(scene)
    bring_up(scene, "store-fast-a", ready=False)
    scene.now_s += 5 * 3600
    assert await changed(scene) == set()
    assert scene.condition("Progressing") == ("False", "UpgradeTimedOut")


async def test_a_paused_upgrade_begins_when_it_is_continued() -> None:
    scene = await settled()
    scene.cluster["spec"]["upgrade"] = {"paused": True}
    scene.cluster["spec"]["image"] = "swiftlet:next"
    assert await changed(scene) == set()
    assert scene.condition("Progressing") == ("False", "UpgradePaused")
    assert "and 5 more restart later: spec.upgrade.paused" in scene.message("Progressing")
    scene.cluster["spec"]["upgrade"] = {"paused": False}
    assert "store-fast-a" in await changed(scene)
    # In the middle it stops at the end of the domain.
    scene.cluster["spec"]["upgrade"] = {"paused": True}
    scene.live()
    assert await changed(scene) == set()
    scene.cluster["spec"]["upgrade"] = {}
    assert "store-fast-b" in await changed(scene)


async def test_a_pause_stops_pods_in_different_zones_as_well() -> None:
    scene = await settled("minimal")
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await scene.step()
    live = scene.kube.find("StatefulSet", "store-disks")
    live["status"] |= {"updateRevision": "new", "updatedReplicas": 1}
    for number, revision in enumerate(("old", "old", "new")):
        pod = scene.kube.find("Pod", f"store-disks-{number}")
        pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "controller-revision-hash": revision}
    live["status"]["observedGeneration"] = live["metadata"]["generation"]
    scene.cluster["spec"]["upgrade"] = {"paused": True}
    await scene.step()
    strategy = scene.kube.find("StatefulSet", "store-disks")["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"]["partition"] == 2
    scene.cluster["spec"]["upgrade"] = {}
    await scene.step()
    strategy = scene.kube.find("StatefulSet", "store-disks")["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"]["partition"] == 1


# --- many clusters ------------------------------------------------------------------------------------------------


async def test_a_cluster_waits_while_another_one_is_restarted() -> None:
    turns = Turns()
    assert turns.of(OTHERS[0])(True, False, False) == ""
    scene = await settled(turns=turns)
    scene.cluster["spec"]["image"] = "swiftlet:next"
    assert await changed(scene) == set()
    assert scene.condition("Progressing") == ("True", "WaitingForTurn")
    assert "data/second is being restarted, at most 1 at a time" in scene.message("Progressing")
    turns.of(OTHERS[0])(False, False, False)
    assert "store-fast-a" in await changed(scene)
    assert "data/store" in turns.of(OTHERS[0])(True, False, False)


async def test_a_turn_is_given_back_when_all_is_over() -> None:
    turns = Turns()
    scene = await settled(turns=turns)
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await scene.step()
    assert turns._stuck == {KEY: False}
    await scene.settle(12)
    assert turns._stuck == {}


async def test_who_is_in_the_middle_goes_on_whoever_has_the_turn() -> None:
    turns = Turns()
    scene = await settled(turns=turns)
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await scene.step()
    turns._stuck = {OTHERS[0]: False}  # Another replica of the operator has taken over.
    scene.live()
    assert "store-fast-b" in await changed(scene)


async def test_a_cluster_that_is_paused_or_gone_has_no_turn() -> None:
    turns = Turns()
    scene = await settled(turns=turns)
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await scene.step()
    scene.cluster["spec"]["paused"] = True
    await scene.step()
    assert turns._stuck == {}
    turns._stuck = {KEY: False}
    del scene.kube.objects["StorageCluster", "data", "store"]
    await scene.step()
    assert turns._stuck == {}


@pytest.mark.parametrize("goes_on", [False, True])
def test_of_a_stuck_cluster(goes_on: bool) -> None:
    turns = Turns(1, goes_on)
    first, second = (turns.of(one) for one in OTHERS)
    assert first(True, False, False) == ""
    assert "data/second is being restarted" in second(True, False, False)
    first(True, True, True)
    waits_for = second(True, False, False)
    assert waits_for == "" if goes_on else "upgrades.continueAfterTimeout" in waits_for
    first(True, True, False)
    first(False, False, False)
    assert second(True, False, False) == ""


def test_who_was_broken_before_takes_nobodys_turn() -> None:
    turns = Turns()
    first, second = (turns.of(one) for one in OTHERS)
    assert first(True, False, True) == ""
    assert second(True, False, False) == ""


def test_so_many_at_a_time() -> None:
    for limit, expected in ((1, 1), (2, 2), (UNLIMITED, 5)):
        turns = Turns(limit)
        asked = [turns.of(Key("data", str(number)))(True, False, False) for number in range(5)]
        assert asked.count("") == expected


def test_options() -> None:
    environment = {"SWIFTLET_IMAGE": "i", "POD_NAMESPACE": "n"}
    assert (options_of(environment).max_upgrades, options_of(environment).upgrades_continue) == (1, False)
    chosen = options_of({**environment, "MAX_UPGRADES": "3", "UPGRADES_CONTINUE": "true"})
    assert (chosen.max_upgrades, chosen.upgrades_continue) == (3, True)
    with pytest.raises(SettingsError, match="MAX_UPGRADES"):
        options_of({**environment, "MAX_UPGRADES": "-1"})
