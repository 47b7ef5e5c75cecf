"""One store over several clusters: who builds the rings, who takes them, and what nobody does alone."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from swiftlet.ring import Ring, codec
from swiftlet_operator.reports import PolicyUse
from swiftlet_operator.statements import FRESH_S
from swiftlet_operator.tests.federations import Federation, kubeconfig, secret, spec_of

HOUR = 3600


def ring_in(federation: Federation, member: str, ring: str = "object-0") -> Ring:
    chunks: list[bytes] = []
    while found := federation[member].kube.objects.get(("ConfigMap", "data", f"{member}-ring-{ring}-{len(chunks)}")):
        chunks.append(base64.b64decode(found["binaryData"]["chunk"]))
    return codec.join(chunks)


def devices(ring: Ring) -> dict[str, Any]:
    return {one.name: one for one in ring.devices if one is not None}


async def settled(*members: str) -> Federation:
    federation = Federation(*members)
    await federation.settle()
    return federation


async def test_the_leader_builds_rings_of_all_devices_and_the_others_have_the_same() -> None:
    federation = await settled("east", "west")

    east, west = ring_in(federation, "east"), ring_in(federation, "west")
    assert set(devices(east)) == {f"{one}-disks-{i}/d0" for one in ("east", "west") for i in range(3)}
    assert devices(east)["west-disks-0/d0"].host == "west-disks-0.west.example.org"
    assert devices(east)["west-disks-0/d0"].region == "west"
    assert (west.version, [bytes(row) for row in west.rows]) == (east.version, [bytes(row) for row in east.rows])
    for member in ("east", "west"):
        assert federation[member].condition("FederationReady") == ("True", "AllHeard")
        assert federation[member].condition("Ready")[0] == "True"
    assert federation["west"].condition("RingsBalanced") == ("True", "Followed")
    assert set(devices(ring_in(federation, "west", "account"))) == {
        f"{one}-container-{i}/db" for one in ("east", "west") for i in range(3)
    }


async def test_a_follower_has_no_builder_and_no_keys_of_its_own() -> None:
    federation = Federation("east", "west", keys=False)
    for _ in range(3):
        await federation.step()

    assert federation["west"].condition("FederationReady") == ("False", "KeysMissing")
    assert "west-keys" not in federation["west"].kube.names("Secret")
    assert federation.version("east") == 0, "a first layout has the devices of all"

    federation.give_keys("west")
    await federation.settle()
    assert federation.version("west") == federation.version("east") > 0
    assert not any("builder" in name for name in federation["west"].kube.names("ConfigMap"))


async def test_other_keys_are_told_with_what_to_do() -> None:
    federation = await settled("east", "west")
    made = federation["west"].kube.find("Secret", "west-keys")
    made["data"]["cluster-key"] = base64.b64encode(b"another key of enough length").decode()
    await federation.step("west")
    await federation.step("east")

    assert federation["east"].condition("FederationReady") == ("False", "KeysDiffer")
    assert "same Secret" in federation["east"].message("FederationReady")
    assert federation["west"].condition("FederationReady") == ("False", "KeysDiffer")


async def test_nothing_is_written_at_rest_but_a_statement_now_and_then() -> None:
    federation = await settled("east", "west")

    assert await federation.step() == []
    federation.pass_time(300)
    written = await federation.step()
    assert written == ["east: apply ConfigMap/east-federation", "west: apply ConfigMap/west-federation"]


async def test_a_follower_goes_on_with_the_last_ring_while_the_leader_is_away() -> None:
    federation = await settled("east", "west")
    before = ring_in(federation, "west")
    federation.away.add("east")
    federation.pass_time(FRESH_S + 1)
    await federation.step()

    assert federation["west"].condition("FederationReady") == ("False", "Unreachable")
    assert federation["west"].condition("Ready")[0] == "True"
    assert ring_in(federation, "west").version == before.version
    assert await federation.step("west") == []


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_no_ring_changes_while_a_member_is_not_heard(how: str) -> None:
    federation = await settled("east", "west")
    version = federation.version("east")
    federation["east"].cluster["spec"]["pools"][0]["replicas"] = 4
    if how == "away":
        federation.away.add("west")
    federation.pass_time(2 * HOUR)
    for _ in range(3):
        await federation.step("east")

    assert federation.version("east") == version
    assert federation["east"].condition("RingsBalanced") == ("False", "Rebalancing")
    assert "member west is not heard" in federation["east"].message("RingsBalanced")
    reason = {"away": "Unreachable", "silent": "Silent"}[how]
    assert federation["east"].condition("FederationReady") == ("False", reason)

    federation.away.clear()
    await federation.settle()
    assert federation.version("east") > version
    assert federation.version("west") == federation.version("east")
    assert "east-disks-3/d0" in devices(ring_in(federation, "west"))


async def test_the_next_rebalance_waits_for_the_devices_of_others() -> None:
    federation = await settled("east", "west")
    version = federation.version("east")
    late = federation["west"].told.rounds
    federation["west"].told.said["west-disks-1/d0", "object-0"] = type(late)(
        held=1, misplaced=0, behind=7, unchecked=0, ring_version=version
    )
    federation["east"].cluster["spec"]["pools"][0]["replicas"] = 4
    federation.pass_time(2 * HOUR)
    await federation.step("west")
    for _ in range(3):
        await federation.step()

    assert federation.version("east") == version
    assert "west-disks-1/d0" in federation["east"].message("RingsBalanced")
    federation["west"].told.said.clear()
    await federation.settle()
    assert federation.version("east") > version


async def test_a_pod_of_the_leader_stays_until_the_others_use_the_ring_without_it() -> None:
    federation = Federation("east", "west")
    federation["east"].cluster["spec"]["pools"][0]["replicas"] = 4
    await federation.settle()
    west = federation["west"]
    west.told.version = federation.version("west")
    federation["east"].cluster["spec"]["pools"][0]["replicas"] = 3
    east = federation["east"]
    for number in range(6):
        federation.pass_time(2 * HOUR)
        if number == 1:
            version = federation.version("east")
            east.told.said["east-disks-3/d0", "object-0"] = type(east.told.rounds)(
                held=0, misplaced=0, behind=0, unchecked=0, ring_version=version + 100
            )
        await federation.step()
        await federation.step()

    sets = east.kube.find("StatefulSet", "east-disks")
    assert sets["spec"]["replicas"] == 4
    assert east.condition("ScaleInBlocked") == ("True", "AwaitingServices"), east.message("ScaleInBlocked")
    assert "member west" in east.message("ScaleInBlocked")
    assert east.condition("FederationReady") == ("False", "RingsSpreading")

    west.told.version = 1_000_000
    for _ in range(4):
        await federation.step()
    assert east.kube.find("StatefulSet", "east-disks")["spec"]["replicas"] == 3


async def test_a_pool_of_a_follower_shrinks_by_the_leaders_rings() -> None:
    federation = Federation("east", "west")
    federation["west"].cluster["spec"]["pools"][0]["replicas"] = 4
    await federation.settle()
    west = federation["west"]
    assert "west-disks-3/d0" in devices(ring_in(federation, "east"))
    west.cluster["spec"]["pools"][0]["replicas"] = 3
    await federation.step("west")
    assert west.kube.find("StatefulSet", "west-disks")["spec"]["replicas"] == 4
    west.told.said["west-disks-3/d0", "object-0"] = type(west.told.rounds)(
        held=0, misplaced=0, behind=0, unchecked=0, ring_version=1_000_000
    )
    for _ in range(5):
        federation.pass_time(2 * HOUR)
        await federation.step()
        await federation.step()

    assert "west-disks-3/d0" not in devices(ring_in(federation, "west"))
    assert west.kube.find("StatefulSet", "west-disks")["spec"]["replicas"] == 3


async def test_two_leaders_change_nothing() -> None:
    federation = await settled("east", "west")
    version = federation.version("east")
    federation["west"].cluster["spec"]["federation"]["leader"] = "west"
    for member in ("east", "west"):
        federation[member].cluster["spec"]["pools"][0]["replicas"] = 4
    federation.pass_time(2 * HOUR)
    for _ in range(4):
        await federation.step()

    for member in ("east", "west"):
        assert federation[member].condition("FederationReady") == ("False", "LeaderDisputed")
        assert federation.version(member) == version
    assert "names west as the leader" in federation["east"].message("RingsBalanced")


async def test_another_member_becomes_the_leader() -> None:
    federation = await settled("east", "west")
    version = federation.version("east")
    for member in ("east", "west"):
        federation[member].cluster["spec"]["federation"]["leader"] = "west"
    federation["east"].cluster["spec"]["pools"][0]["replicas"] = 4
    federation.pass_time(2 * HOUR)
    await federation.settle()
    assert federation.version("west") == version, "a builder that is made of a ring counts all as just moved"
    federation.pass_time(2 * HOUR)
    await federation.settle()

    assert federation.version("west") > version
    assert federation.version("east") == federation.version("west")
    assert "east-disks-3/d0" in devices(ring_in(federation, "east"))
    for member in ("east", "west"):
        assert federation[member].condition("FederationReady") == ("True", "AllHeard")


async def test_a_leader_with_older_rings_takes_the_newer_ones_of_the_others() -> None:
    federation = await settled("east", "west")
    old = {key: one for key, one in federation["east"].kube.objects.items() if "ring" in key[2] or "builder" in key[2]}
    federation["east"].cluster["spec"]["pools"][0]["replicas"] = 4
    federation.pass_time(2 * HOUR)
    await federation.settle()
    newer = federation.version("west")
    for key in [k for k in federation["east"].kube.objects if "ring" in k[2] or "builder" in k[2]]:
        del federation["east"].kube.objects[key]
    federation["east"].kube.objects |= old
    await federation.settle()

    assert federation.version("east") >= newer
    assert federation.version("west") == federation.version("east")


async def test_devices_of_the_same_names_are_refused() -> None:
    """Cluster `a` with pool `b-c` has pods of the same names as cluster `a-b` with pool `c`."""
    federation = Federation("a")
    first = federation["a"].cluster["spec"]
    first["pools"][0]["name"] = "b-disks"
    first["federation"]["members"] = spec_of("a", "a", ("a-b",))["federation"]["members"]
    federation["a"].kube.put(secret("to-a-b", "kubeconfig", kubeconfig("https://a-b")))
    federation.add("a-b", spec_of("a-b", "a", ("a",)))
    federation.give_keys("a-b")
    for _ in range(4):
        await federation.step()

    assert federation["a"].condition("FederationReady") == ("False", "DeviceNamesCollide")
    assert "a-b-disks-0/d0" in federation["a"].message("FederationReady")
    assert federation.version("a") == 0


async def test_policies_have_to_be_the_same() -> None:
    federation = await settled("east", "west")
    policy: dict[str, Any] = {
        "apiVersion": "swiftlet.io/v1alpha1",
        "kind": "StoragePolicy",
        "metadata": {"name": "gold", "namespace": "data", "uid": "u", "generation": 1},
        "spec": {"clusterRef": {"name": "east"}, "index": 1, "name": "gold", "replicas": 2},
    }
    federation["east"].kube.put(policy)
    for _ in range(3):
        await federation.step()

    assert federation["east"].condition("FederationReady") == ("False", "PoliciesDiffer")
    assert "it lacks gold, index 1" in federation["east"].message("FederationReady")
    assert federation.version("east", "object-1") == 0

    federation["west"].kube.put({**policy, "spec": {**policy["spec"], "clusterRef": {"name": "west"}}})
    await federation.settle()
    assert federation.version("west", "object-1") == federation.version("east", "object-1") > 0
    assert federation["west"].condition("FederationReady") == ("True", "AllHeard")


async def test_one_member_restarts_its_pods_at_a_time() -> None:
    federation = await settled("east", "west")
    for member in ("east", "west"):
        federation[member].cluster["spec"]["image"] = "swiftlet:newer"

    def images(member: str) -> set[str]:
        found = (federation[member].kube.find("StatefulSet", f"{member}-{one}") for one in ("disks", "container"))
        return {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in found}

    await federation.step("west")
    assert images("west") == {"swiftlet:test"}
    assert federation["west"].condition("Progressing") == ("True", "WaitingForTurn")
    assert federation.said("west").wants
    assert federation.said("east").turn == "east"

    await federation.settle(steps=30)
    assert images("east") == images("west") == {"swiftlet:newer"}


async def test_no_pod_of_a_follower_may_be_evicted_before_its_turn() -> None:
    federation = await settled("east", "west")

    def allowed(member: str) -> object:
        return federation[member].kube.find("PodDisruptionBudget", f"{member}-data")["spec"]["maxUnavailable"]

    assert (allowed("east"), allowed("west")) == (1, 0)
    federation["west"].kube.find("Node", "n1")["spec"] = {"unschedulable": True}
    await federation.step("west")
    assert federation["west"].condition("NodesCordoned") == ("True", "WaitingForTurn")
    for _ in range(3):
        await federation.step()
    assert allowed("east") == 0
    assert federation["west"].condition("NodesCordoned")[1] in ("DomainOpen", "OnePodAtATime")
    assert federation.said("east").turn == "west"


async def test_status_shows_the_members_and_their_rings() -> None:
    federation = await settled("east", "west", "south")

    told = federation["east"].cluster["status"]["federation"]
    assert told["leader"] == "east"
    assert [one["name"] for one in told["members"]] == ["west", "south"]
    assert all(one["heard"] and one["whole"] for one in told["members"])
    version = federation.version("east")
    assert {one["rings"]["object-0"] for one in told["members"]} == {version}


async def test_regions_of_other_members_are_regions_of_the_store() -> None:
    """Each member's pools are in one region here, and all together in two."""
    federation = Federation("east", "west")
    await federation["east"].step()
    assert federation["east"].condition("RegionsEqual") == ("Unknown", "NotHeard")
    assert federation["east"].message("RegionsEqual").startswith("west has not told yet")
    await federation.settle()
    for member in ("east", "west"):
        assert federation[member].condition("RegionsEqual") == ("Unknown", "NotCompared")
        assert "east, west" in federation[member].message("RegionsEqual")


async def test_nobody_is_said_to_use_rings_where_no_pod_is_ready() -> None:
    federation = await settled("east", "west")
    for kind, _, name in list(federation["west"].kube.objects):
        if kind == "Pod":
            federation["west"].kube.find("Pod", name)["status"]["conditions"] = []
    await federation["west"].step()
    await federation["east"].step()

    assert federation.said("west").uses == {}
    assert federation["east"].condition("FederationReady") == ("False", "RingsSpreading")
    assert "none of the pods of member west is ready" in federation["east"].message("FederationReady")
    await federation.settle()
    assert federation["east"].condition("FederationReady") == ("True", "AllHeard")


async def test_a_policy_is_not_retired_by_the_word_of_one_cluster() -> None:
    federation = await settled("east", "west")
    for member in ("east", "west"):
        federation[member].kube.put(
            {
                "apiVersion": "swiftlet.io/v1alpha1",
                "kind": "StoragePolicy",
                "metadata": {"name": "gold", "namespace": "data", "uid": f"gold-{member}", "generation": 1},
                "spec": {"clusterRef": {"name": member}, "index": 1, "name": "gold", "replicas": 2},
            }
        )
    await federation.settle()
    for member in ("east", "west"):
        live = federation[member].kube.find("StoragePolicy", "gold")
        live["metadata"]["deletionTimestamp"] = "2027-01-16T08:00:00Z"
        pods = [name for name in federation[member].kube.names("Pod") if "-container-" in name]
        federation[member].told.uses = {pod: {1: PolicyUse(0, 0, 0, (), 0, 1.0)} for pod in pods}
        empty = replace(federation[member].told.rounds, held=0, empty_since_s=1.0)
        for number in range(3):
            federation[member].told.said[f"{member}-disks-{number}/d0", "object-1"] = empty
    for _ in range(3):
        federation.pass_time(HOUR)
        await federation.step()

    for member in ("east", "west"):
        assert "gold" in federation[member].kube.names("StoragePolicy")
        assert federation.version(member, "object-1") > 0


async def test_a_store_that_exists_becomes_the_leader() -> None:
    federation = Federation("east")
    spec = federation["east"].cluster["spec"]
    joined = spec.pop("federation")
    spec["pools"][0]["region"] = "default"
    await federation.settle()
    version, before = federation.version("east"), ring_in(federation, "east")
    assert version == 1

    del joined["hostTemplate"]
    spec = federation["east"].cluster["spec"]
    spec["federation"] = joined | {"members": spec_of("east", "east", ("west",))["federation"]["members"]}
    federation["east"].kube.put(secret("to-west", "kubeconfig", kubeconfig("https://west")))
    federation.pass_time(2 * HOUR)
    await federation.settle()
    assert federation.version("east") == version
    assert federation["east"].condition("FederationReady") == ("False", "Unreachable")
    assert federation["east"].condition("Ready")[0] == "True"

    federation.add("west", spec_of("west", "east", ("east",)))
    federation["west"].now_s = federation["east"].now_s
    federation.give_keys("west")
    for _ in range(8):
        federation.pass_time(2 * HOUR)
        await federation.settle()
    after = devices(ring_in(federation, "west"))
    assert {name: after[name].host for name in devices(before)} == {
        name: one.host for name, one in devices(before).items()
    }
    assert after["west-disks-0/d0"].weight == after["east-disks-0/d0"].weight, "it has come to its full weight by steps"
    assert after["east-disks-0/d0"].node == "east/n0"
    for member in ("east", "west"):
        assert federation[member].condition("FederationReady") == ("True", "AllHeard")


async def test_a_follower_that_has_lost_its_rings_gets_them_again() -> None:
    federation = await settled("east", "west")
    version = federation.version("west")
    west = federation["west"].kube
    for key in [one for one in west.objects if "-ring-" in one[2]]:
        del west.objects[key]
    await federation.settle()

    assert ring_in(federation, "west").version == version
    assert federation["west"].condition("FederationReady") == ("True", "AllHeard")


async def test_a_member_that_is_removed_loses_its_devices_by_steps() -> None:
    federation = await settled("east", "west", "south")
    members = federation["east"].cluster["spec"]["federation"]["members"]
    members[:] = [one for one in members if one["name"] != "south"]
    federation.scenes.pop("south")
    for _ in range(4):
        federation.pass_time(2 * HOUR)
        await federation.settle()

    left = devices(ring_in(federation, "west"))
    assert {left[f"south-disks-{number}/d0"].weight for number in range(3)} == {0}
    assert federation["east"].condition("ScaleInBlocked") == ("True", "AwaitingEmpty")
    pods = [f"south-{kind}-{number}" for kind in ("disks", "container") for number in range(3)]
    federation["east"].cluster["metadata"]["annotations"] = {"swiftlet.io/allow-scale-in": ",".join(pods)}
    for _ in range(2):
        federation.pass_time(2 * HOUR)
        await federation.settle()
    assert not any(name.startswith("south") for name in devices(ring_in(federation, "west")))
