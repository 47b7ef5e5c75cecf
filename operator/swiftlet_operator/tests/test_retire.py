"""Retiring a StoragePolicy: what its deletion waits for, what is told meanwhile, and in which order all of it goes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from swiftlet_operator.manifests import POLICY_FINALIZER, Manifest
from swiftlet_operator.plan.policy_use import SKEW_S
from swiftlet_operator.problems import KubeUnavailable
from swiftlet_operator.reports import PolicyUse, RingReport
from swiftlet_operator.tests.reporters import IN_SYNC
from swiftlet_operator.tests.worlds import KEY, Scene, own

GOLD: dict[str, Any] = {"index": 1, "name": "gold"}
SERVERS = [f"store-container-{number}" for number in range(3)]
NOTHING = PolicyUse(0, 0, 0, (), 0, None)


class Policies(Scene):
    """A cluster with the policies Policy-0, which is the default, and gold."""

    async def begin(self, *more: tuple[str, dict[str, Any]]) -> None:
        if not more:
            # With data, so that gold does not take the place of the policy without an object.
            await self.settle()
        for name, body in (("gold", GOLD), *more):
            self.kube.put(own("StoragePolicy", name, body))
        await self.settle()
        assert self.condition("SpecValid") == ("True", "Valid")

    def policy(self, name: str = "gold") -> Manifest:
        return self.kube.find("StoragePolicy", name)

    def delete(self, name: str = "gold") -> None:
        """As `kubectl delete` does."""
        live = self.policy(name)
        if live["metadata"].get("finalizers"):
            live["metadata"]["deletionTimestamp"] = "2027-01-15T10:00:00Z"
        else:
            del self.kube.objects["StoragePolicy", "data", name]

    def settings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = yaml.safe_load(
            self.kube.find("ConfigMap", "store-settings")["data"]["policies.yaml"]
        )
        return found

    def told_of(self, type_: str, name: str = "gold") -> tuple[str, str, str]:
        conditions = self.policy(name)["status"]["conditions"]
        found = next(one for one in conditions if one["type"] == type_)
        return found["status"], found["reason"], found["message"]

    def use(self, use: PolicyUse, index: int = 1, *, servers: list[str] | None = None) -> None:
        """What container servers have counted."""
        for server in servers or SERVERS:
            self.told.uses.setdefault(server, {})[index] = use

    def hold(self, held: int, index: int = 1, *, empty_since_s: float | None = None) -> None:
        """What all devices have of a policy."""
        said = replace(IN_SYNC, held=held, empty_since_s=empty_since_s)
        for pod in range(3):
            self.told.said[f"store-disks-{pod}/d0", f"object-{index}"] = said
            self.told.said[f"store-disks-{pod}/d1", f"object-{index}"] = said

    def empty(self) -> None:
        """Everybody has found nothing twice."""
        since = self.now_s - 3 * SKEW_S
        self.use(replace(NOTHING, empty_since_s=since))
        self.hold(0, empty_since_s=since + 1)

    def parts(self) -> set[str]:
        """What there is of the ring of gold."""
        return {name for kind, _, name in self.kube.objects if "object-1" in name and kind != "StoragePolicy"}

    def gone(self) -> bool:
        return "gold" not in self.kube.names("StoragePolicy")


_BEGUN: list[Policies] = []


@pytest.fixture
async def scene() -> Policies:
    """Policies that have just come to rest, each time from the same past."""
    if not _BEGUN:
        _BEGUN.append(Policies())
        await _BEGUN[0].begin()
    made = Policies()
    made.take_over(_BEGUN[0])
    made.hold(3)
    return made


async def test_a_policy_is_guarded_before_the_services_know_it() -> None:
    scene = Policies()
    await scene.settle()
    scene.kube.put(own("StoragePolicy", "gold", GOLD))
    writes = await scene.step()
    assert POLICY_FINALIZER in scene.policy()["metadata"]["finalizers"]
    assert writes.index("patch StoragePolicy/gold") < writes.index("apply ConfigMap/store-settings")


async def test_without_its_guard_a_policy_is_not_announced() -> None:
    scene = Policies()
    await scene.settle()
    scene.kube.put(own("StoragePolicy", "gold", GOLD))
    scene.kube.failing.add("gold")
    with pytest.raises(KubeUnavailable):
        await scene.step()
    assert [one["name"] for one in scene.settings()] == ["Policy-0"]


async def test_a_deprecated_policy_goes_on_and_is_announced_as_such(scene: Policies) -> None:
    scene.policy()["spec"]["deprecated"] = True
    await scene.settle()
    assert scene.settings()[1] == {"index": 1, "name": "gold", "default": False, "deprecated": True}
    assert scene.told_of("Ready")[:2] == ("True", "Deprecated")
    assert scene.told_of("InUse")[:2] == ("Unknown", "NotProved")
    scene.empty()
    await scene.step()
    assert scene.told_of("InUse") == ("False", "Empty", "no data of it is left, and it can be deleted")
    assert scene.condition("PoliciesRetired") == ("True", "Empty")
    assert not scene.gone()
    scene.policy()["spec"]["deprecated"] = False
    await scene.settle()
    assert scene.settings()[1]["deprecated"] is False
    assert scene.told_of("Ready")[:2] == ("True", "Accepted")
    assert scene.told_of("InUse")[:2] == ("Unknown", "NotCounted")
    assert scene.condition("PoliciesRetired") == ("False", "NotWanted")


async def test_a_deleted_policy_waits_and_says_who_uses_it(scene: Policies) -> None:
    scene.delete()
    scene.use(PolicyUse(2, 9, 2, ("AUTH_a", "AUTH_b"), 8, None), servers=SERVERS[:1])
    scene.use(PolicyUse(1, 5, 3, ("AUTH_c", "AUTH_d", "AUTH_e"), 1, None), servers=SERVERS[1:])
    await scene.settle()
    assert scene.settings()[1]["deprecated"] is True
    status, reason, message = scene.told_of("InUse")
    assert (status, reason) == ("True", "ContainersUseIt")
    assert message.startswith(
        "4 containers with 19 objects use it, in accounts AUTH_a, AUTH_c, AUTH_b and 5 more: copy them to containers of"
        " another policy, and delete them. kubectl swiftlet policy gold lists the containers"
    )
    assert scene.told_of("Ready")[:2] == ("False", "Retiring")
    assert scene.condition("PoliciesRetired") == ("False", "ContainersUseIt")
    assert scene.condition("SpecValid") == ("True", "Valid")
    assert scene.condition("Ready") == ("True", "Available")
    assert message in scene.message("PoliciesRetired")


async def test_copies_of_deleted_containers_and_tombstones_are_waited_for(scene: Policies) -> None:
    scene.delete()
    scene.empty()
    scene.use(replace(NOTHING, copies=3))
    await scene.step()
    assert scene.told_of("InUse")[:2] == ("True", "DeletionsRemembered")
    scene.empty()
    scene.told.said["store-disks-1/d0", "object-1"] = replace(IN_SYNC, held=2)
    await scene.step()
    status, reason, message = scene.told_of("InUse")
    assert (status, reason) == ("True", "ObjectsLeft")
    assert "store-disks-1/d0" in message
    assert not scene.gone()


@pytest.mark.parametrize("silent", ["store-container-1", "store-disks-2"])
async def test_without_word_from_everybody_nothing_is_proved(scene: Policies, silent: str) -> None:
    scene.delete()
    scene.empty()
    scene.told.silent.add(silent)
    for _ in range(3):
        await scene.step()
    status, reason, message = scene.told_of("InUse")
    assert (status, reason) == ("Unknown", "NotProved")
    assert silent in message
    assert len(scene.settings()) == 2


async def test_who_looked_only_once_proves_nothing(scene: Policies) -> None:
    scene.delete()
    scene.empty()
    # It may have found nothing before another one gave it what that one no longer has.
    scene.use(replace(NOTHING, empty_since_s=scene.now_s - SKEW_S / 2), servers=SERVERS[:1])
    await scene.step()
    assert scene.told_of("InUse")[:2] == ("Unknown", "NotProved")
    scene.use(replace(NOTHING, empty_since_s=scene.now_s - 2 * SKEW_S), servers=SERVERS[:1])
    scene.hold(0, empty_since_s=scene.now_s - SKEW_S / 2)
    await scene.step()
    assert scene.told_of("InUse")[:2] == ("Unknown", "NotProved")
    assert len(scene.settings()) == 2


async def test_objects_are_looked_for_after_the_last_container_was_gone(scene: Policies) -> None:
    scene.delete()
    scene.empty()
    for (device, ring), said in list(scene.told.said.items()):
        scene.told.said[device, ring] = replace(said, synced_at_s=scene.now_s - 3.5 * SKEW_S, empty_since_s=1.0)
    await scene.step()
    assert scene.told_of("InUse")[:2] == ("Unknown", "NotProved")


async def test_a_device_that_left_the_ring_and_still_holds_some_is_heard(scene: Policies) -> None:
    scene.delete()
    scene.empty()
    scene.told.devices_per_pod = 3
    scene.told.said["store-disks-0/d2", "object-1"] = RingReport(held=1)
    await scene.step()
    assert scene.told_of("InUse")[1] == "ObjectsLeft"


async def test_it_goes_in_order_when_it_is_proved_that_nothing_is_left(scene: Policies) -> None:
    assert scene.parts() == {"store-ring-object-1-0", "store-builder-object-1-0", "store-object-1"}
    scene.delete()
    await scene.settle()
    scene.empty()
    await scene.step()
    assert [one["name"] for one in scene.settings()] == ["Policy-0"], "first the services forget it"
    assert "store-builder-object-1-0" in scene.parts()
    specs = json.loads(scene.kube.find("ConfigMap", "store-accepted")["data"]["specs.json"])
    assert "gold" not in specs["storagepolicies"]
    assert not scene.gone()
    await scene.step()
    assert scene.parts() == set(), "then its ring goes, with copies"
    assert not scene.gone()
    await scene.step()
    assert scene.gone()
    await scene.step()
    assert await scene.step() == []
    assert scene.condition("SpecValid") == ("True", "Valid")
    assert scene.condition("PoliciesRetired") == ("False", "NotWanted")


async def test_services_that_still_have_its_ring_bring_nothing_back(scene: Policies) -> None:
    scene.delete()
    scene.empty()
    for _ in range(4):
        await scene.step()
    assert scene.gone()
    assert scene.rings_laid_out()["object-1"] > 0
    await scene.step()
    assert scene.parts() == set()


@pytest.mark.parametrize("failing", ["store-settings", "store-accepted", "store-builder-object-1-0", "gold"])
async def test_each_step_waits_for_the_one_before(scene: Policies, failing: str) -> None:
    scene.delete()
    await scene.settle()
    scene.empty()
    scene.kube.failing.add(failing)
    failures = 0
    for _ in range(5):
        try:
            await scene.step()
        except KubeUnavailable:
            failures += 1
        if failing == "store-settings":
            assert live_names(scene) == {"Policy-0", "gold"}
        if failing != "gold":
            assert "store-builder-object-1-0" in scene.parts()
        assert not scene.gone()
    assert failures > 1
    scene.kube.failing.clear()
    for _ in range(4):
        await scene.step()
    assert scene.gone()
    assert scene.parts() == set()
    assert scene.condition("SpecValid") == ("True", "Valid")


def live_names(scene: Policies) -> set[str]:
    return {str(one["name"]) for one in scene.settings()}


async def test_one_that_gets_a_container_again_before_the_settings_forget_it_stays(scene: Policies) -> None:
    scene.delete()
    scene.empty()
    scene.kube.failing.add("store-settings")
    with pytest.raises(KubeUnavailable):
        await scene.step()
    scene.kube.failing.clear()
    scene.use(PolicyUse(1, 0, 1, ("AUTH_a",), 3, None))
    scene.hold(1)
    await scene.settle()
    assert live_names(scene) == {"Policy-0", "gold"}
    assert {"store-ring-object-1-0", "store-builder-object-1-0", "store-object-1"} == scene.parts()
    assert scene.told_of("InUse")[1] == "ContainersUseIt"


class TestIndexes:
    async def test_of_a_policy_that_is_retired_nobody_gets_the_index(self, scene: Policies) -> None:
        scene.delete()
        await scene.step()
        scene.kube.put(own("StoragePolicy", "tin", {"index": 1, "name": "tin"}))
        await scene.step()
        assert scene.condition("SpecValid") == ("False", "PolicyIndexTwice")
        assert live_names(scene) == {"Policy-0", "gold"}

    async def test_nor_between_the_steps_in_which_it_goes(self, scene: Policies) -> None:
        scene.delete()
        scene.empty()
        await scene.step()
        assert live_names(scene) == {"Policy-0"}
        scene.kube.put(own("StoragePolicy", "tin", {"index": 1, "name": "tin"}))
        for _ in range(3):
            await scene.step()
            if not scene.gone():
                assert scene.condition("SpecValid") == ("False", "PolicyIndexTwice")
                assert live_names(scene) == {"Policy-0"}
        assert scene.gone()

    async def test_the_second_of_an_index_is_let_go_at_once(self, scene: Policies) -> None:
        twin = own("StoragePolicy", "tin", {"index": 1, "name": "tin"})
        twin["metadata"]["finalizers"] = [POLICY_FINALIZER]
        scene.kube.put(twin)
        await scene.step()
        assert scene.condition("SpecValid") == ("False", "PolicyIndexTwice")
        scene.delete("tin")
        await scene.step()
        assert "tin" not in scene.kube.names("StoragePolicy")
        await scene.settle()
        assert scene.condition("SpecValid") == ("True", "Valid")
        assert POLICY_FINALIZER in scene.policy()["metadata"]["finalizers"]

    async def test_after_it_is_gone_the_index_is_free(self, scene: Policies) -> None:
        scene.delete()
        scene.empty()
        for _ in range(4):
            await scene.step()
        assert scene.gone()
        # Services have forgotten the ring, too.
        scene._laid_out.pop("object-1")
        scene.told.said.clear()
        scene.kube.put(own("StoragePolicy", "tin", {"index": 1, "name": "tin"}))
        await scene.settle(12)
        assert live_names(scene) == {"Policy-0", "tin"}
        assert scene.parts() == {"store-ring-object-1-0", "store-builder-object-1-0", "store-object-1"}


class TestTheDefault:
    async def test_it_stays_until_another_one_is(self) -> None:
        scene = Policies()
        default = {"index": 0, "name": "main", "default": True}
        await scene.begin(("main", default))
        scene.delete("main")
        await scene.settle()
        assert scene.told_of("InUse", "main")[:2] == ("True", "IsDefault")
        assert "set default: true on another StoragePolicy" in scene.told_of("Ready", "main")[2]
        assert scene.settings()[0] == {"index": 0, "name": "main", "default": True, "deprecated": False}
        scene.policy("gold")["spec"]["default"] = True
        await scene.settle()
        assert scene.condition("SpecValid") == ("True", "Valid")
        assert scene.settings() == [
            {"index": 0, "name": "main", "default": False, "deprecated": True},
            {"index": 1, "name": "gold", "default": True, "deprecated": False},
        ]
        for server in SERVERS:
            scene.use(replace(NOTHING, empty_since_s=scene.now_s - 3 * SKEW_S), 0, servers=[server])
        scene.hold(0, 0, empty_since_s=scene.now_s - 2 * SKEW_S)
        for _ in range(4):
            await scene.step()
        assert scene.kube.names("StoragePolicy") == {"gold"}
        assert scene.settings() == [{"index": 1, "name": "gold", "default": True, "deprecated": False}]

    async def test_an_implicit_policy_can_be_named_and_retired(self, scene: Policies) -> None:
        scene.policy()["spec"]["default"] = True
        scene.kube.put(own("StoragePolicy", "zero", {"index": 0, "name": "Policy-0", "deprecated": True}))
        await scene.settle()
        scene.delete("zero")
        scene.use(replace(NOTHING, empty_since_s=scene.now_s - 3 * SKEW_S), 0)
        scene.hold(0, 0, empty_since_s=scene.now_s - 2 * SKEW_S)
        for _ in range(4):
            await scene.step()
        assert scene.settings() == [{"index": 1, "name": "gold", "default": True, "deprecated": False}]
        assert scene.condition("SpecValid") == ("True", "Valid")

    async def test_it_cannot_be_deprecated(self, scene: Policies) -> None:
        scene.policy()["spec"] |= {"default": True, "deprecated": True}
        await scene.step()
        assert scene.condition("SpecValid") == ("False", "DefaultDeprecated")
        assert scene.settings()[1] == {"index": 1, "name": "gold", "default": False, "deprecated": False}


async def test_while_something_else_is_wrong_a_deletion_is_not_taken_back(scene: Policies) -> None:
    scene.delete()
    scene.kube.put(own("StoragePolicy", "tin", {"index": 2, "name": "tin", "default": True}))
    scene.kube.put(own("StoragePolicy", "zinc", {"index": 3, "name": "zinc", "default": True}))
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "TwoDefaultPolicies")
    assert scene.settings()[1]["deprecated"] is True
    scene.empty()
    for _ in range(4):
        await scene.step()
    assert scene.gone()
    assert live_names(scene) == {"Policy-0"}


async def test_a_paused_cluster_lets_nothing_go(scene: Policies) -> None:
    scene.delete()
    scene.empty()
    scene.cluster["spec"]["paused"] = True
    for _ in range(3):
        await scene.step()
    assert live_names(scene) == {"Policy-0", "gold"}
    assert not scene.gone()


async def test_with_its_cluster_a_policy_loses_its_guard(scene: Policies) -> None:
    scene.cluster["spec"]["deletionPolicy"] = "Delete"
    scene.cluster["metadata"] |= {"deletionTimestamp": "2027-01-15T10:00:00Z"}
    await scene.reconciler.reconcile(KEY)
    assert POLICY_FINALIZER not in scene.policy()["metadata"]["finalizers"]


async def test_a_policy_whose_cluster_is_not_there_is_let_go(scene: Policies) -> None:
    scene.delete()
    del scene.kube.objects["StorageCluster", "data", "store"]
    await scene.reconciler.reconcile(KEY)
    assert scene.gone()
