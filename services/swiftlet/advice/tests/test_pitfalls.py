"""Each pitfall, found in a cluster that falls into it, and not in one that doesn't."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swiftlet.advice.cluster import cluster_of
from swiftlet.advice.pitfalls.checks import CHECKS, pitfalls
from swiftlet.advice.pitfalls.subject import NOTE, WARNING, Finding, Subject
from swiftlet.advice.tests.cases import GB, HDD, MB, SSD, TB, costs, load
from swiftlet.advice.text import finding_lines

ZONES = ["a", "b", "c"]


def pool(name: str = "main", **fields: Any) -> dict[str, Any]:
    """Six strong pods of four disks."""
    return {
        "name": name,
        "replicas": 6,
        "roles": ["object"],
        "zones": ZONES,
        "region": "default",
        "devicesPerPod": 4,
        "storage": {"className": "slow", "size": "10Ti"},
        "resources": {"requests": {"cpu": 4, "memory": "8Gi"}},
        **fields,
    }


def manifest(*pools: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A cluster without any pitfall, changed."""
    proxy = {
        "replicas": 3,
        "workers": 4,
        "service": {"type": "LoadBalancer"},
        "resources": {"requests": {"cpu": 4}},
        **fields.pop("proxy", {}),
    }
    spec = {
        "pools": list(pools) or fields.pop("pools", [pool()]),
        "rings": {"replicas": 3, "partPower": 14},
        "proxy": proxy,
        "container": {"replicas": 3, "storage": {"className": "fast", "size": "100Gi"}},
        "tls": {},
        **fields,
    }
    return {"metadata": {"name": "store"}, "spec": spec}


def subject(*pools: dict[str, Any], policies: tuple[dict[str, Any], ...] = (), **fields: Any) -> Subject:
    """What is known of that cluster alone."""
    return Subject(cluster_of(manifest(*pools, **fields), policies), costs())


def policy(**spec: Any) -> dict[str, Any]:
    """A StoragePolicy of the cluster."""
    return {"metadata": {"name": "gold"}, "spec": {"clusterRef": {"name": "store"}, "name": "gold", **spec}}


def told(found: list[Finding]) -> list[tuple[str, str, str]]:
    """What each is, how bad, and which field to change."""
    return [(one.pitfall, one.severity, one.field) for one in found]


def test_a_good_cluster_has_none() -> None:
    assert told(pitfalls(subject())) == []


PROXY = "spec.proxy.replicas"
TYPE = "spec.proxy.service.type"
CODED = policy(erasureCoding={"data": 4, "parity": 2}, default=True)
CASES: list[tuple[str, Subject, list[tuple[str, str, str]]]] = [
    ("4+2 with devices to spare, in three zones", subject(policies=(CODED,)), []),
    (
        "2+1",
        subject(policies=(policy(erasureCoding={"data": 2, "parity": 1}),)),
        [("little-parity", WARNING, "spec.erasureCoding of StoragePolicy gold")],
    ),
    (
        "16+8 on as many devices",
        subject(policies=(policy(erasureCoding={"data": 16, "parity": 8}),)),
        [("few-devices", WARNING, "spec.pools[].replicas")],
    ),
    (
        "8+3 in three zones",
        subject(policies=(policy(erasureCoding={"data": 8, "parity": 3}),)),
        [("few-zones", WARNING, "spec.pools[].zones")],
    ),
    (
        "two replicas",
        subject(rings={"replicas": 2, "partPower": 14}),
        [("two-replicas", WARNING, "spec.rings.replicas")],
    ),
    (
        "a policy with fewer",
        subject(policies=(policy(replicas=2.5), policy())),
        [("two-replicas", WARNING, "spec.replicas of StoragePolicy gold")],
    ),
    ("two zones", subject(pool(zones=["a", "b"])), [("few-zones", WARNING, "spec.pools[].zones")]),
    (
        "pods that don't go into the zones evenly",
        subject(pool(replicas=7)),
        [("uneven-zones", WARNING, "spec.pools[].replicas")],
    ),
    (
        "a giant among dwarfs",
        subject(pool(zones=[]), pool("giant", zones=[], replicas=1, storage={"size": "100Ti"})),
        [("one-pod-holds-much", WARNING, "spec.pools[giant].replicas")],
    ),
    (
        "one proxy",
        subject(proxy={"replicas": 1, "workers": 12, "resources": {"requests": {"cpu": 12}}}),
        [("one-proxy", WARNING, PROXY)],
    ),
    (
        "a limit below the workers",
        subject(proxy={"resources": {"limits": {"cpu": "3500m"}}}),
        [
            ("weak-proxies", WARNING, "spec.proxy.resources.limits.cpu"),
            ("weak-proxies", WARNING, "spec.proxy.resources.requests.cpu"),
        ],
    ),
    (
        "hardly anything asked for",
        subject(proxy={"resources": {"requests": {"cpu": "100m"}}}),
        [("weak-proxies", WARNING, "spec.proxy.resources.requests.cpu")],
    ),
    (
        "proxies for a far larger store",
        subject(proxy={"replicas": 100}),
        [("underused-proxies", NOTE, PROXY)],
    ),
    (
        "two workers for all of it",
        subject(proxy={"replicas": 2, "workers": 1}),
        [("overused-proxies", NOTE, PROXY)],
    ),
    ("the port of a node", subject(proxy={"service": {"type": "NodePort"}}), [("overloaded-balancer", WARNING, TYPE)]),
    (
        "TLS that ends at an Ingress",
        subject(proxy={"ingress": {"hosts": ["a"], "tlsSecretRef": {"name": "a"}}}),
        [("overloaded-balancer", NOTE, "spec.proxy.ingress")],
    ),
    (
        "processors that wait for one disk",
        subject(pool(devicesPerPod=1, replicas=24, resources={"limits": {"cpu": 4}})),
        [("few-disks", NOTE, "spec.pools[main].devicesPerPod")],
    ),
    (
        "databases beside objects",
        subject(container={"replicas": 3, "storage": {"className": "slow", "size": "100Gi"}}),
        [("slow-databases", NOTE, "spec.container.storage.className")],
    ),
    (
        "a pool that fills first",
        subject(pool(), pool("fast", weight=40_000)),
        [("fills-first", NOTE, "spec.pools[fast].weight")],
    ),
    (
        "sumo nodes in one zone",
        subject(
            pool(replicas=9),
            pool("sumo", roles=["object", "proxy"], zones=["d"], replicas=2),
            proxy={"replicas": 0, "workers": 12, "resources": {"requests": {"cpu": 12}}},
        ),
        [("sumo-in-few-zones", WARNING, "spec.pools[sumo].zones")],
    ),
    (
        "sumo nodes that outweigh all others",
        subject(
            pool(storage={"className": "slow", "size": "1Ti"}),
            pool("sumo", roles=["object", "proxy"], replicas=3, storage={"className": "slow", "size": "10Ti"}),
            proxy={"replicas": 0, "workers": 8, "resources": {"requests": {"cpu": 8}}},
        ),
        [("sumo-outweighs", WARNING, "spec.pools[sumo].storage.size")],
    ),
    (
        "few partitions",
        subject(rings={"replicas": 3, "partPower": 8}),
        [("low-part-power", WARNING, "spec.rings.partPower")],
    ),
    (
        "millions of partitions",
        subject(rings={"replicas": 3, "partPower": 22}),
        [("high-part-power", NOTE, "spec.rings.partPower")],
    ),
]


@pytest.mark.parametrize(("case", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_without_a_load(case: Subject, expected: list[tuple[str, str, str]]) -> None:
    found = pitfalls(case)
    assert told(found) == expected
    for one in found:
        assert one.reason[-1] not in ".,;"
        assert one.change


def test_a_store_that_is_tried_out_is_told_gently() -> None:
    small = subject(
        pool(replicas=3, devicesPerPod=1, resources={}),
        proxy={"resources": {"requests": {"cpu": "100m"}}, "workers": 1},
    )
    assert told(pitfalls(small)) == [("weak-proxies", NOTE, "spec.proxy.resources.requests.cpu")]


def loaded(asked: Any, **fields: Any) -> Subject:
    """The good cluster with a load, and its disks."""
    return replace(subject(**fields), load=asked, costs=costs(), disks={"slow": HDD, "fast": SSD})


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (loaded(load(MB, 10 * TB, read=20)), []),
        (loaded(load(MB, 10 * TB, read=1_500)), [("few-disks", WARNING, "spec.pools[main].devicesPerPod")]),
        (
            loaded(load(1000, 10 * TB, read=80_000), pools=[pool(storage={"className": "fast", "size": "10Ti"})]),
            [("overused-proxies", WARNING, PROXY)],
        ),
        (
            loaded(
                load(1000, TB, create=200),
                pools=[pool(storage={"className": "fast", "size": "10Ti"})],
                container=manifest()["spec"]["container"] | {"storage": {"className": "slow", "size": "9Gi"}},
            ),
            [("slow-databases", WARNING, "spec.container.storage.className")],
        ),
        (loaded(load(MB, 100 * TB, read=1)), [("full", WARNING, "spec.pools[].replicas")]),
        (
            replace(loaded(load(MB, 10 * TB, read=1)), balancer_bytes_per_s=MB),
            [("overloaded-balancer", WARNING, TYPE)],
        ),
        (
            loaded(load(MB, 10 * TB, read=1), proxy={"replicas": 12}),
            [("underused-proxies", NOTE, PROXY)],
        ),
        (
            loaded(load(MB, 110 * TB, read=1), pools=[pool(), pool("other", weight=30_000)]),
            [("fills-first", WARNING, "spec.pools[other].weight")],
        ),
        (
            loaded(replace(load(MB, 10 * TB, read=1), growth=100)),
            [("low-part-power", WARNING, "spec.rings.partPower")],
        ),
    ],
)
def test_with_a_load(case: Subject, expected: list[tuple[str, str, str]]) -> None:
    assert told(pitfalls(case)) == expected


def test_what_a_change_promises_is_so() -> None:
    """Who follows the advice has the pitfall no longer."""
    busy = loaded(load(MB, 10 * TB, read=1_500))
    (found,) = pitfalls(busy)
    enough = int(found.change.partition(",")[0])
    assert pitfalls(loaded(load(MB, 10 * TB, read=1_500), pools=[pool(devicesPerPod=enough)])) == []
    many = loaded(load(1000, 10 * TB, read=80_000), pools=[pool(storage={"className": "fast", "size": "10Ti"})])
    (found,) = pitfalls(many)
    more = int(found.change.partition(",")[0])
    fast = pool(storage={"className": "fast", "size": "10Ti"})
    assert pitfalls(loaded(load(1000, 10 * TB, read=80_000), pools=[fast], proxy={"replicas": more})) == []


def test_findings_are_told_with_reason_and_change() -> None:
    (line, why, change) = finding_lines(pitfalls(subject(proxy={"service": {"type": "NodePort"}})))
    assert line == "WARNING spec.proxy.service.type: overloaded-balancer"
    assert why.startswith("        why: clients of a NodePort know")
    assert change == "        set: LoadBalancer"


def test_every_check_has_found_something() -> None:
    """And the guide has each of them."""
    found = {one.pitfall for _, case, _ in CASES for one in pitfalls(case)} | {"full"}
    assert len(CHECKS) == 16
    guide = (Path(__file__).parents[4] / "docs" / "guide" / "sizing.md").read_text("utf-8")
    (_, table) = guide.split("| pitfall | what is wrong |")
    first_cells = re.findall(r"^\| ([^|]*) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert found == {name for cell in first_cells for name in re.findall(r"`([a-z-]+)`", cell)}


def test_a_gigabyte_more_or_less_is_no_pitfall() -> None:
    assert pitfalls(loaded(load(GB, 70 * TB, read=0.1))) == []
