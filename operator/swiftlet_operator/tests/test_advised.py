"""What `swiftlet advise` prints is what the definitions and the operator accept, and has no pitfalls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swiftlet.advice.cluster import cluster_of
from swiftlet.advice.costs import shipped
from swiftlet.advice.pitfalls.checks import pitfalls
from swiftlet.advice.pitfalls.subject import Subject
from swiftlet.crd import KINDS, parse_storage_cluster, parse_storage_policy
from swiftlet.crd.tests.openapi import load_crds, misfits, schema_of, with_defaults
from swiftlet.main.commands.advise.workload_file import read_workload
from swiftlet_operator.checks import check
from swiftlet_operator.tests.advised import WORKLOADS, advised
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.world import World

CRDS = load_crds()
EVERY = [(path, number) for path in WORKLOADS for number in range(len(advised(path)))]
IDS = [f"{path.stem}-{number}" for path, number in EVERY]


def test_every_arrangement_is_among_them() -> None:
    roles: set[tuple[Any, ...]] = set()
    for path in WORKLOADS:
        for cluster, _ in advised(path):
            roles.add(tuple(tuple(pool["roles"]) for pool in cluster["spec"]["pools"]))
    assert roles == {(("object",),), (("object", "proxy"),), (("object", "proxy"), ("object",))}


@pytest.mark.parametrize(("path", "number"), EVERY, ids=IDS)
def test_the_definitions_and_the_operator_accept_it(path: Path, number: int) -> None:
    cluster, policy = advised(path)[number]
    for one in (cluster, policy):
        assert list(misfits(schema_of(CRDS[one["kind"]]), one)) == []
    # A rule in CEL, which only an API server looks at.
    reserved = {"container", "metadata", "proxy", "redis", "storage"}
    assert not reserved & {pool["name"] for pool in cluster["spec"]["pools"]}
    placed = {**cluster, "metadata": {**cluster["metadata"], "namespace": "data"}}
    world = World(cluster=parse_storage_cluster(placed), now_s=0, policies=(parse_storage_policy(policy),))
    assert [(one.reason, one.message) for one in check(world) if one.violated] == []


@pytest.mark.parametrize("path", WORKLOADS, ids=[path.stem for path in WORKLOADS])
def test_what_is_advised_has_no_pitfalls_with_its_load(path: Path) -> None:
    given = read_workload(path)
    cluster, policy = (with_defaults(schema_of(CRDS[one["kind"]]), one) for one in advised(path)[0])
    assert given.hardware is not None
    subject = Subject(
        cluster_of(cluster, [policy]),
        shipped(),
        given.load(),
        given.rules(),
        {one.storage_class: one.value() for one in given.hardware.disks},
        given.hardware.balancer_bytes_per_s,
        given.hardware.speed,
    )
    assert [(one.field, one.reason) for one in pitfalls(subject)] == []


@pytest.mark.apiserver
@pytest.mark.parametrize(("path", "number"), EVERY, ids=IDS)
def test_an_api_server_accepts_it(apiserver: ApiServer, path: Path, number: int) -> None:
    namespace = apiserver.namespace()
    for one in advised(path)[number]:
        one["metadata"]["namespace"] = namespace
        where = f"/apis/swiftlet.io/v1alpha1/namespaces/{namespace}/{KINDS[one['kind']].plural}"
        answer = apiserver.create(where, one)
        assert answer.status == 201, answer.message
