"""All reads of one reconcile, into one frozen world."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from swiftlet.crd import (
    Resource,
    StorageClusterSpec,
    StorageUserSpec,
    parse_ring,
    parse_storage_cluster,
    parse_storage_policy,
    parse_storage_quota,
    parse_storage_user,
)
from swiftlet.errors import SettingsError
from swiftlet.ring import Ring
from swiftlet_operator.build.secrets import credentials_name
from swiftlet_operator.checks import policies_of
from swiftlet_operator.evidence import gather
from swiftlet_operator.keys import are_lost, keys_of
from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import (
    CERTIFICATE,
    CHILD_KINDS,
    COMPONENT_LABEL,
    HTTP_ROUTE,
    MANAGED_BY_LABEL,
    MONITORING_KINDS,
    NODE,
    OTHERS_KINDS,
    POD,
    POLICY,
    PRIORITY_CLASS,
    PV,
    PVC,
    QUOTA,
    RING,
    SECRET,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    USER,
    Kind,
    Manifest,
    cluster_labels,
    labels_of,
    name_of,
)
from swiftlet_operator.members import Read, hear, read_over_https
from swiftlet_operator.plan.accepted import accepted_tls_secret
from swiftlet_operator.plan.guard import looked_for
from swiftlet_operator.plan.kept_rings import kept_version, lost_rings
from swiftlet_operator.plan.lost import needs_volumes
from swiftlet_operator.plan.sealed_keys import unsealed
from swiftlet_operator.plan.sync import seconds
from swiftlet_operator.plan.trouble import seen_of
from swiftlet_operator.plan.volumes import classes_of
from swiftlet_operator.problems import KubeForbidden
from swiftlet_operator.recovery import NO_KEYS, Known
from swiftlet_operator.statements import Federated
from swiftlet_operator.statusz import Reporter
from swiftlet_operator.world import Unreadable, Unsealed, World

_log = logging.getLogger(__name__)

SATELLITES = (RING, POLICY, QUOTA, USER)
"""Kinds that name their cluster."""

_R = TypeVar("_R", bound=Resource[Any])


async def observe(
    kube: Kube,
    reporter: Reporter,
    manifest: Manifest,
    now_s: int,
    recovery: Known = NO_KEYS,
    read: Read = read_over_https,
) -> World:
    """Return everything around a cluster.

    Raises SettingsError when the cluster itself can't be read, and KubeError. `recovery` has the keys that open sealed
    copies of lost keys, `read` reads ConfigMaps of other members of a federation.
    """
    cluster = parse_storage_cluster(manifest)
    name, namespace = cluster.meta.name, cluster.meta.namespace
    labels = cluster_labels(name)
    others = await _served(kube)
    kinds = (*CHILD_KINDS, *others)
    # Pods and volumes have the labels from their StatefulSets.
    lists = [kube.list(kind, namespace, labels) for kind in (*kinds, POD, PVC)]
    own = [kube.list(kind, namespace) for kind in SATELLITES]
    found = await asyncio.gather(*lists, *own, kube.list(NODE, None))
    children = {(one["kind"], name_of(one)): one for group in found[: len(kinds)] for one in group}
    pods, claims = found[len(kinds)], found[len(kinds) + 1]
    rings, policies, quotas, users = ([one for one in group if refers(one, name)] for group in found[-5:-1])
    children |= await _by_name(kube, namespace, name, _ring_names(rings, policies), children)
    unreadable: list[Unreadable] = []
    reports = await reporter.reports([pod for pod in pods if labels_of(pod).get(COMPONENT_LABEL)])
    views = _parsed(users, USER, parse_storage_user, unreadable)
    world = World(
        cluster=cluster,
        now_s=now_s,
        created_s=seconds(manifest["metadata"].get("creationTimestamp")),
        resource_version=str(manifest["metadata"].get("resourceVersion") or ""),
        ring_objects=_parsed(rings, RING, parse_ring, unreadable),
        policies=_parsed(policies, POLICY, parse_storage_policy, unreadable),
        quotas=_parsed(quotas, QUOTA, parse_storage_quota, unreadable),
        users=views,
        unreadable=tuple(unreadable),
        own={(one["kind"], name_of(one)): one for one in (manifest, *rings, *policies, *quotas, *users)},
        children=children,
        pods=tuple(pods),
        claims=tuple(claims),
        nodes=tuple(found[-1]),
        secrets=await _secrets(kube, namespace, _secret_names(cluster, views), children),
        reports=reports,
        volumes=await _volumes(kube, children.values(), pods, claims, found[-1]),
        storage_classes={
            name: await _allowed(kube, STORAGE_CLASS, name) for name in sorted(classes_of(cluster.spec, claims))
        },
        filling=_filling(manifest),
        has_monitoring=set(MONITORING_KINDS) <= set(others),
        has_gateway_api=HTTP_ROUTE in others,
        has_cert_manager=CERTIFICATE in others,
        named=await _named(kube, cluster, children),
        recovery=recovery.keys,
        recovery_problem=recovery.problem,
    )
    world = await _with_accepted_secret(kube, world)
    world = replace(world, federated=await _federated(world, read))
    evidence = await gather(kube, namespace, seen_of(world))
    rescued, opened = await _rescued(reporter, world), await _unsealed(reporter, world)
    return replace(world, rescued=rescued, evidence=evidence, unsealed=opened)


async def _with_accepted_secret(kube: Kube, world: World) -> World:
    """Return the world with the Secret of the certificate that stays in force while another one is not there yet."""
    name = accepted_tls_secret(world)
    if name is None or name in world.secrets:
        return world
    found = await _secrets(kube, world.cluster.meta.namespace, [name], world.children)
    return replace(world, secrets={**world.secrets, **found})


async def _federated(world: World, read: Read) -> Federated:
    """Return what is heard of the other members of the cluster's federation; nothing without one."""
    federation = world.cluster.spec.federation
    if federation is None:
        return Federated()
    rings = {one.spec.ring_name for one in world.ring_objects} | {"account", "container"}
    rings |= {f"object-{policy.index}" for policy in policies_of(world)}
    versions = {ring: kept_version(world, ring) for ring in rings}
    return await hear(federation, world.secrets, keys_of(world), versions, world.now_s, read)


async def _by_name(
    kube: Kube, namespace: str, cluster: str, rings: Iterable[str], children: Mapping[tuple[str, str], Manifest]
) -> dict[tuple[str, str], Manifest]:
    """Return objects without which data can't be found, if none with the cluster's labels has their name.

    Somebody who restores an object by hand may leave its labels out.
    """
    found: dict[tuple[str, str], Manifest] = {}
    for kind, names in looked_for(cluster, rings):
        for name in names:
            if (kind.kind, name) in children or (live := await kube.get(kind, namespace, name)) is None:
                break
            found[kind.kind, name] = live
    return found


def _ring_names(rings: Iterable[Manifest], policies: Iterable[Manifest]) -> list[str]:
    """Return the rings that a cluster may have: of Ring objects and StoragePolicies, and those of every cluster."""
    indexes = {0} | {(one.get("spec") or {}).get("index") for one in policies}
    indexes |= {(one.get("spec") or {}).get("policyIndex") for one in rings}
    return ["account", "container", *(f"object-{index}" for index in sorted(i for i in indexes if isinstance(i, int)))]


async def _rescued(reporter: Reporter, world: World) -> dict[str, Ring]:
    """Return the rings that the ConfigMaps have lost and that pods hand out."""
    found: dict[str, Ring] = {}
    for name, pods in lost_rings(world).items():
        ring = await reporter.ring([pod for pod in world.pods if name_of(pod) in pods], name)
        if ring is not None:
            _log.warning(
                "version %d of the ring %s of %s is taken from a pod", ring.version, name, world.cluster.meta.name
            )
            found[name] = ring
    return found


async def _unsealed(reporter: Reporter, world: World) -> Unsealed:
    """Return the keys that both Secrets have lost, from sealed copies on the volumes of pods."""
    if not are_lost(world):
        return Unsealed()
    found = await asyncio.to_thread(unsealed, world, await reporter.sealed_keys(world.pods))
    if found.secret is not None:
        _log.warning("the keys of %s are taken from a sealed copy on a volume", world.cluster.meta.name)
    return found


def refers(manifest: Mapping[str, Any], cluster: str) -> bool:
    """Return whether one of our objects belongs to the cluster of this name."""
    return cluster_of(manifest) == cluster


def cluster_of(manifest: Mapping[str, Any]) -> str | None:
    """Return the cluster that an object belongs to: by its clusterRef, or by its label if the operator made it."""
    reference = (manifest.get("spec") or {}).get("clusterRef")
    if isinstance(reference, dict) and reference.get("name"):
        return str(reference["name"])
    labels = labels_of(manifest)
    ours = labels.items() >= {MANAGED_BY_LABEL: cluster_labels("")[MANAGED_BY_LABEL]}.items()
    return labels.get("app.kubernetes.io/instance") if ours else None


async def _served(kube: Kube) -> list[Kind]:
    return [kind for kind in OTHERS_KINDS if await kube.serves(kind)]


async def _named(
    kube: Kube, cluster: Resource[StorageClusterSpec], children: Mapping[tuple[str, str], Manifest]
) -> dict[tuple[str, str], Manifest | None]:
    """Read the ServiceAccounts and PriorityClasses that the spec names: Kubernetes makes no pod without them."""
    shapes = [cluster.spec.shape_of(one) for one in cluster.spec.components]
    found: dict[tuple[str, str], Manifest | None] = {}
    for kind, names in (
        (SERVICE_ACCOUNT, {one.service_account_name for one in shapes}),
        (PRIORITY_CLASS, {one.priority_class_name for one in shapes}),
    ):
        for name in sorted(name for name in names if name is not None):
            with contextlib.suppress(KubeForbidden):
                known = children.get((kind.kind, name))
                found[kind.kind, name] = known or await kube.get(kind, cluster.meta.namespace, name)
    return found


def _secret_names(cluster: Resource[StorageClusterSpec], users: Iterable[Resource[StorageUserSpec]]) -> set[str]:
    """Return the Secrets that our objects name."""
    names = {credentials_name(user) for user in users}
    if (sync := cluster.spec.container_sync) is not None:
        names.add(sync.realms_secret_ref.name)
    if (federation := cluster.spec.federation) is not None:
        names |= {one.kubeconfig_secret_ref.name for one in federation.heard}
    tls = cluster.spec.tls.secret_name(cluster.meta.name)
    return names if tls is None else {*names, tls}


async def _secrets(
    kube: Kube, namespace: str, names: Iterable[str], children: Mapping[tuple[str, str], Manifest]
) -> dict[str, Manifest | None]:
    """Return Secrets by name; most are the operator's own and have been read already."""
    found: dict[str, Manifest | None] = {}
    for name in sorted(names):
        known = children.get((SECRET.kind, name))
        found[name] = known if known is not None else await kube.get(SECRET, namespace, name)
    return found


async def _volumes(
    kube: Kube,
    children: Iterable[Manifest],
    pods: Iterable[Manifest],
    claims: Iterable[Manifest],
    nodes: Iterable[Manifest],
) -> dict[str, Manifest]:
    """Return the volumes of pods that are on no node or on a node that is gone; only they can be lost with a node."""
    concerned = needs_volumes(children, pods, {name_of(node) for node in nodes})
    names = {claim["spec"].get("volumeName") for claim in claims if name_of(claim).partition("-")[2] in concerned}
    found = {name: await _allowed(kube, PV, str(name)) for name in sorted(name for name in names if name)}
    return {name: volume for name, volume in found.items() if volume is not None}


async def _allowed(kube: Kube, kind: Kind, name: str) -> Manifest | None:
    """Return a cluster-wide object; also None when the operator's role is too old to read it.

    One pod without a node must not stop everything else because of a missing right; only what needs the object is not
    done.
    """
    try:
        return await kube.get(kind, "", name)
    except KubeForbidden as error:
        _log.warning("%s %s can't be read: %s", kind.kind, name, error)
        return None


def _filling(manifest: Manifest) -> dict[str, str]:
    known = (manifest.get("status") or {}).get("filling")
    return {str(device): str(level) for device, level in known.items()} if isinstance(known, dict) else {}


def _parsed(
    manifests: Iterable[Manifest], kind: Kind, parse: Callable[[Manifest], _R], unreadable: list[Unreadable]
) -> tuple[_R, ...]:
    found = []
    for manifest in manifests:
        try:
            found.append(parse(manifest))
        except SettingsError as error:
            unreadable.append(Unreadable(kind, manifest, str(error)))
    return tuple(found)
