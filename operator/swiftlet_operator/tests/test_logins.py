"""StorageUsers get no more than the StorageCluster allows, and nobody else's login."""

from __future__ import annotations

from typing import Any

import yaml

from swiftlet_operator.tests import worlds
from swiftlet_operator.tests.clusters import SPECS
from swiftlet_operator.tests.worlds import Scene, own, text_of

ROOT = {"account": "admin", "user": "root", "roles": ["user", "reseller_admin"]}


async def settled(auth: dict[str, Any]) -> Scene:
    """A cluster that runs, with this spec.auth."""
    return await worlds.settled(yaml.safe_load(SPECS["minimal"]) | {"auth": auth})


def user(scene: Scene, name: str, spec: dict[str, Any], made: str = "2027-01-15T09:00:00Z") -> None:
    """Somebody makes a StorageUser."""
    one = own("StorageUser", name, spec)
    one["metadata"]["creationTimestamp"] = made
    scene.kube.put(one)


def users_of(scene: Scene) -> dict[str, tuple[list[str], str]]:
    """Roles and hash of each login in the users file."""
    entries = yaml.safe_load(text_of(scene.kube.find("Secret", "store-users"), "users.yaml"))
    return {f"{one['account']}:{one['user']}": (one["roles"], one["secret_hash"]) for one in entries}


def ready(scene: Scene, name: str) -> tuple[str, str]:
    """Reason and message of a StorageUser's condition."""
    found = scene.kube.find("StorageUser", name)["status"]["conditions"]
    one = next(one for one in found if one["type"] == "Ready")
    return one["reason"], one["message"]


async def test_nobody_makes_a_reseller_admin_by_a_storage_user_alone() -> None:
    scene = await settled({})
    user(scene, "root", ROOT)
    await scene.settle()

    reason, message = ready(scene, "root")
    assert reason == "RoleNotAllowed"
    assert "role reseller_admin is not in spec.auth.allowedRoles of StorageCluster store" in message
    assert users_of(scene) == {}
    assert "root-credentials" not in scene.kube.names("Secret")

    scene.cluster["spec"]["auth"] = {"users": [{"account": "admin", "user": "root", "roles": ["reseller_admin"]}]}
    await scene.settle()
    assert ready(scene, "root")[0] == "ProxiesSilent"
    assert users_of(scene)["admin:root"][0] == ["user", "reseller_admin"]
    assert "root-credentials" in scene.kube.names("Secret")


async def test_a_role_for_one_login_is_none_for_another() -> None:
    scene = await settled({"users": [{"account": "admin", "user": "root", "roles": ["reseller_admin"]}]})
    user(scene, "anna", {**ROOT, "user": "anna"})
    user(scene, "otto", {**ROOT, "account": "test", "roles": ["reseller_admin"]})
    await scene.settle()

    assert [ready(scene, name)[0] for name in ("anna", "otto")] == ["RoleNotAllowed"] * 2
    assert users_of(scene) == {}


async def test_a_role_that_is_no_longer_allowed_is_lost_and_the_rest_stays() -> None:
    scene = await settled({"allowedRoles": ["user", "reseller_admin"]})
    user(scene, "root", ROOT)
    user(scene, "only", {**ROOT, "user": "only", "roles": ["reseller_admin"]})
    await scene.settle()
    before = users_of(scene)
    assert [roles for roles, _ in before.values()] == [["reseller_admin"], ["user", "reseller_admin"]]

    scene.cluster["spec"]["auth"] = {}
    await scene.settle()
    assert users_of(scene) == {"admin:root": (["user"], before["admin:root"][1])}
    assert [ready(scene, name)[0] for name in ("root", "only")] == ["RoleNotAllowed"] * 2
    await scene.settle()
    assert list(users_of(scene)) == ["admin:root"]

    scene.cluster["spec"]["auth"] = {"allowedRoles": ["user", "reseller_admin"]}
    await scene.settle()
    assert users_of(scene) == before


async def test_a_reserved_account_is_for_those_that_are_named() -> None:
    auth = {"reservedAccounts": ["billing"], "users": [{"account": "billing", "user": "robot"}]}
    scene = await settled(auth)
    user(scene, "robot", {"account": "billing", "user": "robot"})
    user(scene, "guest", {"account": "billing", "user": "guest"})
    user(scene, "other", {"account": "test", "user": "robot"})
    await scene.settle()

    assert set(users_of(scene)) == {"billing:robot", "test:robot"}
    reason, message = ready(scene, "guest")
    assert reason == "AccountReserved"
    assert "name billing:guest in its spec.auth.users" in message
    assert "guest-credentials" not in scene.kube.names("Secret")

    scene.cluster["spec"]["auth"] = {"reservedAccounts": ["billing", "test"]}
    await scene.settle()
    assert users_of(scene) == {}


async def test_a_newcomer_takes_over_nobody_s_login() -> None:
    scene = await settled({})
    user(scene, "tester", {"account": "test", "user": "tester"})
    await scene.settle()
    before = users_of(scene)

    scene.kube.put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "mine", "namespace": "data"},
            "data": {"key": "eA=="},
        }
    )
    theirs = {"account": "test", "user": "tester", "secretRef": {"name": "mine", "key": "key"}}
    user(scene, "aaa", theirs, made="2027-01-15T09:00:00Z")
    await scene.settle()
    assert users_of(scene) == before
    assert ready(scene, "aaa")[0] == "UserTwice"
    assert ready(scene, "tester")[0] == "ProxiesSilent"

    # The login is free when its StorageUser is gone.
    del scene.kube.objects["StorageUser", "data", "tester"]
    await scene.settle()
    assert ready(scene, "aaa")[0] == "ProxiesSilent"
    assert users_of(scene)["test:tester"] == (["user"], "hash(x)")


async def test_of_two_that_nobody_has_accepted_the_older_one_has_the_login() -> None:
    scene = await settled({})
    user(scene, "zoe", {"account": "test", "user": "tester"}, made="2027-01-15T09:00:00Z")
    user(scene, "aaa", {"account": "test", "user": "tester"}, made="2027-01-15T09:00:01Z")
    await scene.settle()
    assert ready(scene, "zoe")[0] == "ProxiesSilent"
    assert ready(scene, "aaa")[0] == "UserTwice"


async def test_a_second_user_of_a_login_does_not_get_into_the_file_by_a_missing_secret() -> None:
    scene = await settled({})
    user(scene, "tester", {"account": "test", "user": "tester"})
    await scene.settle()
    user(
        scene,
        "zzz",
        {"account": "test", "user": "tester", "roles": ["admin"], "secretRef": {"name": "gone", "key": "key"}},
    )
    await scene.settle()
    entries = yaml.safe_load(text_of(scene.kube.find("Secret", "store-users"), "users.yaml"))
    assert [one["roles"] for one in entries] == [["user"]]


async def test_while_the_spec_is_wrong_users_have_what_was_accepted() -> None:
    scene = await settled({})
    scene.cluster["spec"]["auth"] = {"allowedRoles": ["user", "reseller_admin"]}
    scene.cluster["spec"]["network"] = {"dns": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}
    user(scene, "root", ROOT)
    await scene.settle()
    assert scene.condition("SpecValid")[0] == "False"
    assert ready(scene, "root")[0] == "RoleNotAllowed"
    assert users_of(scene) == {}
