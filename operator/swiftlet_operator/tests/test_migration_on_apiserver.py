"""From v1alpha1 to v1beta1 on a real API server, with a v1beta1 of StorageUser that only these tests have.

In it the field `user` is called `login`. The three steps are those of docs/design/2026-11-24-crd-versions.md: both
versions and both names; everything under the new name in the new version; v1alpha1 and the old name gone.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import AliasChoices, Field

from swiftlet.crd import kinds
from swiftlet.crd.user import LoginPart, StorageUserSpec
from swiftlet_operator.definitions import install
from swiftlet_operator.kube import connected
from swiftlet_operator.main import migrate_storage
from swiftlet_operator.manifests import DEFINITION, OWN_KINDS, SECRET, Kind, Manifest, name_of
from swiftlet_operator.migration import Rename, migrate
from swiftlet_operator.problems import KubeError
from swiftlet_operator.tests.apiserver import ApiServer, hyperkube, running
from swiftlet_operator.tests.conftest import CRDS
from swiftlet_operator.tests.middleman import Middleman
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting
from swiftlet_operator.tests.test_robust_on_apiserver import at_rest, operating, until

pytestmark = pytest.mark.apiserver

NAME = "storageusers.swiftlet.io"
ALPHA = Kind("swiftlet.io/v1alpha1", "StorageUser", "storageusers")
BETA = Kind("swiftlet.io/v1beta1", "StorageUser", "storageusers")
RENAMES = {NAME: (Rename("spec.user", "spec.login"),)}

_ONE_LOGIN = "has(self.user) || has(self.login)"
_SAME = "!has(self.user) || !has(self.login) || self.user == self.login"
_FIXED = "(has(self.login) ? self.login : self.user) == (has(oldSelf.login) ? oldSelf.login : oldSelf.user)"


class BothNames(StorageUserSpec):
    """How the operator of the first step reads a user: by either name."""

    user: LoginPart = Field(validation_alias=AliasChoices("login", "user"))


def _definition() -> Manifest:
    made: Manifest = yaml.safe_load((CRDS / "storageusers.yaml").read_text("utf-8"))
    return made


def _spec(version: Manifest) -> Manifest:
    spec: Manifest = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def with_both() -> Manifest:
    """The first step: v1beta1 is there and stored, and both versions know both names."""
    made = _definition()
    (alpha,) = made["spec"]["versions"]
    spec = _spec(alpha)
    spec["required"].remove("user")
    del spec["properties"]["user"]["x-kubernetes-validations"]
    spec["properties"]["login"] = copy.deepcopy(spec["properties"]["user"])
    spec["x-kubernetes-validations"] = [
        {"rule": _ONE_LOGIN, "message": "login is missing"},
        {"rule": _SAME, "message": "user is login's older name: leave it out, or give both the same value"},
        {"rule": _FIXED, "message": "login can't change: tokens carry it; create another user"},
    ]
    beta = copy.deepcopy(alpha)
    beta["name"] = "v1beta1"
    alpha.update(storage=False, deprecated=True, deprecationWarning="use swiftlet.io/v1beta1, and login for user")
    made["spec"]["versions"] = [alpha, beta]
    return made


def with_the_newer_alone() -> Manifest:
    """The last step."""
    made = with_both()
    made["spec"]["versions"] = made["spec"]["versions"][1:]
    spec = _spec(made["spec"]["versions"][0])
    del spec["properties"]["user"], spec["x-kubernetes-validations"]
    spec["required"].append("login")
    return made


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """An API server of its own: definitions are the whole cluster's."""
    binary = hyperkube()
    assert binary is not None
    with running(binary) as server:
        server.install_crds(CRDS)
        yield server


@pytest.fixture
async def kube(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    async with connected(30.0) as plain:
        counting = Counting(plain._client, plain._timeout_s)
        counting.writes = []
        yield counting


def path(kind: Kind, namespace: str, name: str = "") -> str:
    """Of a StorageUser, or of all in the namespace."""
    return f"{kind.path}/namespaces/{namespace}/{kind.plural}{name and f'/{name}'}"


def make(server: ApiServer, namespace: str, name: str, kind: Kind, **spec: Any) -> None:
    """A StorageUser of the StorageCluster `store`."""
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "store"}, "account": "test", "roles": ["admin", "reader"], **spec},
    }
    answer = server.create(path(kind, namespace), body)
    assert answer.status == 201, answer.message


async def served(kube: Counting, kind: Kind, there: bool = True) -> None:
    async def look() -> bool:
        return await kube.serves(kind) == there

    await until(f"{kind.api_version} is {'' if there else 'not '}served", look)


async def spec_of(kube: Counting, kind: Kind, namespace: str, name: str) -> Manifest:
    found = await kube.get(kind, namespace, name)
    assert found is not None, f"{name} can't be read as {kind.api_version}"
    assert found["apiVersion"] == kind.api_version
    spec: Manifest = found["spec"]
    return spec


async def stored_versions(kube: Counting) -> list[str]:
    live = await kube.get(DEFINITION, "", NAME)
    assert live is not None
    versions: list[str] = live["status"]["storedVersions"]
    return versions


async def test_from_one_version_to_the_next_while_the_operator_works(
    server: ApiServer, kube: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "STORAGE_USER", replace(kinds.STORAGE_USER, spec=BothNames))
    cluster = Cluster(server, kube, "minimal")
    await cluster.make()

    async def has_key(name: str) -> None:
        """The operator has seen the user: it has made the key and told so."""

        async def look() -> bool:
            found = await kube.get(ALPHA, cluster.namespace, name)
            conditions = ((found or {}).get("status") or {}).get("conditions") or []
            ready = any(one["type"] == "Ready" and one["reason"] != "ClusterWaits" for one in conditions)
            return ready and await kube.get(SECRET, cluster.namespace, f"{name}-credentials") is not None

        await until(f"the operator sees {name}", look)

    async with (
        Middleman(server, tmp_path / "through").running() as middleman,
        operating(cluster, monkeypatch, middleman),
    ):
        make(server, cluster.namespace, "ann", ALPHA, user="ann")
        await at_rest(cluster, middleman)
        await has_key("ann")

        await install(kube, [with_both()], "0.2.0")
        await served(kube, BETA)
        make(server, cluster.namespace, "bob", BETA, login="bob")
        make(server, cluster.namespace, "cyd", ALPHA, user="cyd")
        await has_key("bob")
        await has_key("cyd")

        # Whoever reads in one version and writes in the other loses nothing.
        for name, kind, other in (("ann", ALPHA, BETA), ("bob", BETA, ALPHA), ("cyd", BETA, ALPHA)):
            before = await spec_of(kube, kind, cluster.namespace, name)
            assert await spec_of(kube, other, cluster.namespace, name) == before
            found = server.get(path(other, cluster.namespace, name)).body
            assert (
                server.request("PUT", f"{path(other, cluster.namespace, name)}?fieldValidation=Strict", found).status
                == 200
            )
            assert await spec_of(kube, kind, cluster.namespace, name) == before
        refused = server.patch(path(BETA, cluster.namespace, "ann"), {"spec": {"login": "other"}})
        assert refused.status == 422
        assert "user is login's older name" in refused.message

        assert await stored_versions(kube) == ["v1alpha1", "v1beta1"]
        assert await migrate(kube, NAME, RENAMES) == 3
        assert await stored_versions(kube) == ["v1beta1"]
        for name in ("ann", "bob", "cyd"):
            spec = await spec_of(kube, ALPHA, cluster.namespace, name)
            assert (spec["login"], spec.get("user"), spec["roles"]) == (name, None, ["admin", "reader"])
        assert await migrate(kube, NAME, RENAMES) == 0, "there is nothing left to do"

        # A manifest that somebody has kept under the old name still fits, and the operator goes on meanwhile.
        await kube.patch(ALPHA, cluster.namespace, "ann", {"spec": {"user": "ann"}})
        make(server, cluster.namespace, "dan", ALPHA, user="dan")
        await has_key("dan")

    await install(kube, [with_the_newer_alone()], "0.3.0", renames=RENAMES)
    await served(kube, ALPHA, there=False)
    names = [name_of(one) for one in await kube.list(BETA, cluster.namespace)]
    assert names == ["ann", "bob", "cyd", "dan"]
    for name in names:
        spec = await spec_of(kube, BETA, cluster.namespace, name)
        assert (spec["login"], spec["roles"]) == (name, ["admin", "reader"]), "dan by the old name, later"


async def test_a_version_goes_only_when_nothing_is_stored_in_it(server: ApiServer, kube: Counting) -> None:
    namespace = server.namespace("versions")
    make(server, namespace, "ann", ALPHA, user="ann")
    with pytest.raises(KubeError, match="upgrade to a version first that has both v1alpha1 and v1beta1"):
        await install(kube, [with_the_newer_alone()], "0.3.0", renames=RENAMES)
    assert (await spec_of(kube, ALPHA, namespace, "ann"))["user"] == "ann"

    await install(kube, [with_both()], "0.2.0", renames=RENAMES)
    await served(kube, BETA)
    live = await kube.get(DEFINITION, "", NAME)
    assert live is not None
    with pytest.raises(KubeError, match=r"status\.storedVersions"):
        await kube.replace({**with_the_newer_alone(), "metadata": live["metadata"]})

    await install(kube, [with_the_newer_alone()], "0.3.0", renames=RENAMES)
    assert await stored_versions(kube) == ["v1beta1"]
    assert (await spec_of(kube, BETA, namespace, "ann"))["login"] == "ann"


async def test_an_object_that_can_t_be_written_keeps_its_version(server: ApiServer, kube: Counting) -> None:
    namespace = server.namespace("versions")
    for name in ("ann", "bob"):
        make(server, namespace, name, ALPHA, user=name)
    await install(kube, [with_both()], "0.2.0")
    await served(kube, BETA)
    wrong = {NAME: (Rename("spec.account", "spec.roles"), Rename("spec.user", "spec.login"))}

    with pytest.raises(KubeError, match=f"storageusers {namespace}/ann stays as it was: .*spec.account"):
        await migrate(kube, NAME, wrong)
    assert await stored_versions(kube) == ["v1alpha1", "v1beta1"]
    assert (await spec_of(kube, ALPHA, namespace, "bob"))["user"] == "bob"

    assert await migrate(kube, NAME, RENAMES) == 2


def test_a_command_does_it_for_all_kinds(server: ApiServer) -> None:
    environ = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
    done = subprocess.run(
        [sys.executable, "-m", "swiftlet_operator", "migrate-storage"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert f"{NAME}: all objects are stored as v1alpha1" in done.stderr
    assert done.stderr.count("all objects are stored as") == len(OWN_KINDS)


async def test_a_definition_that_stores_no_longer_what_it_did_is_migrated_by_the_command(
    server: ApiServer, kube: Counting
) -> None:
    namespace = server.namespace("versions")
    make(server, namespace, "ann", ALPHA, user="ann")
    await install(kube, [with_both()], "0.2.0")

    await migrate_storage()

    assert await stored_versions(kube) == ["v1beta1"]
    assert (await spec_of(kube, ALPHA, namespace, "ann"))["user"] == "ann", "no field has two names in what is released"
