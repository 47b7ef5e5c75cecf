"""What is planned for while the specs don't fit together: what was accepted last stands in for what is wrong.

The specs of the StorageCluster, its StoragePolicies and its Rings are written to the ConfigMap `X-accepted` whenever
all checks pass. While one fails, the cluster is kept by as much of what is asked as fits together with the rest as it
was accepted last: a StoragePolicy that somebody deleted stays in force, and a pool may be enlarged meanwhile. A Ring
object that is gone comes back as it was accepted, for its defaults could lower the replicas.

Keys and certificates are no specs, and nothing stands in for them. While they are wrong everything else is healed, but
nothing is done to the keys and the rings, and no pod with data is restarted, as it might not come back.

A cluster that is made anew over the volumes of one whose keys are lost is begun without them: its pods hand out the
sealed copies that they find, and wait.

Fault model: people delete and edit all of these objects, in any order. Without the ConfigMap, or with one that can't be
read, nothing is known to stand in, and a cluster whose specs don't fit together is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from swiftlet.crd import (
    Resource,
    RingSpec,
    StorageClusterSpec,
    StoragePolicySpec,
    parse_ring,
    parse_storage_cluster,
    parse_storage_policy,
)
from swiftlet.errors import SettingsError
from swiftlet_operator.build.accepted import ENTRY, accepted_name
from swiftlet_operator.checks import (
    AWAITED,
    KEY_REASONS,
    KEYS_LOST,
    TLS_REASONS,
    Verdict,
    check,
    counts,
    policies_of,
)
from swiftlet_operator.manifests import CLUSTER, CONFIG_MAP, POLICY, RING, Kind, Manifest
from swiftlet_operator.world import World

_LAYOUT = (POLICY, RING)
_Specs = Mapping[str, Any]
_REMEMBERED = 256
"""For how many clusters the accepted specs are remembered as they were read last."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What is planned for: a world whose specs fit together, and these specs as plain data by kind and name.

    `kept` has the kinds whose accepted specs are used instead of those that are asked for now. `secrets_wrong` says
    whether keys or certificates are lost or can't be used, `certificate_awaited` whether cert-manager has yet to issue
    the certificate that the pods take.
    """

    world: World
    specs: _Specs
    kept: tuple[Kind, ...] = ()
    secrets_wrong: bool = False
    certificate_awaited: bool = False

    def ring_spec(self, ring: str) -> tuple[str, Any] | None:
        """Return name and spec of a ring's Ring object: as it is now, or as it was when the specs were accepted."""
        for one in self.world.ring_objects:
            if one.spec.ring_name == ring:
                return one.meta.name, self.specs[RING.plural].get(one.meta.name)
        return None

    @property
    def message(self) -> str:
        """Return what becomes of the cluster while something is wrong with it; empty when all is as it is asked."""
        parts = []
        if self.kept:
            names = " and ".join(_PLURALS[kind] for kind in self.kept)
            parts.append(f"until then the {names} stay in force as they were accepted last, and all else goes on")
        if self.secrets_wrong:
            parts.append("until then rings stay as they are and no pod with data is restarted; what is lost is healed")
        elif self.certificate_awaited:
            parts.append("until then no pod with data is restarted, and proxies that start wait for it")
        return "; ".join(parts)


_PLURALS = {CLUSTER: "spec of the StorageCluster", POLICY: "StoragePolicies", RING: "Rings"}


def basis(world: World, verdicts: Sequence[Verdict]) -> Basis | None:
    """Return as much of the desired state as fits together; None when no state is known that does."""
    accepted = _accepted(world)
    asked = _asked(world)
    if accepted is None:
        wrong = _wrong(verdicts)
        # Pods on the volumes of a cluster whose keys are lost may have sealed copies of them.
        if wrong - AWAITED - {KEYS_LOST}:
            return None
        return Basis(world, asked, secrets_wrong=KEYS_LOST in wrong, certificate_awaited=bool(wrong & AWAITED))
    views, specs = accepted
    name = world.cluster.meta.name
    for kept in ((), _LAYOUT, (CLUSTER,), (CLUSTER, *_LAYOUT)):
        there = _with(world, views, kept)
        # Another certificate has to be there before the one in use is given up.
        same = there.cluster.spec.tls.secret_name(name) == views.cluster.tls.secret_name(name)
        tolerated = KEY_REASONS | (TLS_REASONS | AWAITED if same else frozenset())
        wrong = _wrong(check(there))
        if wrong <= tolerated:
            merged = _merged(there, asked, specs, kept)
            return Basis(there, merged, kept, bool(wrong - AWAITED), bool(wrong & AWAITED))
    return None


def accepted_tls_secret(world: World) -> str | None:
    """Return the Secret with the certificate of the spec that was accepted last."""
    accepted = _accepted(world)
    return accepted[0].cluster.tls.secret_name(world.cluster.meta.name) if accepted is not None else None


@dataclass(frozen=True, slots=True)
class _Views:
    cluster: StorageClusterSpec
    policies: tuple[Resource[StoragePolicySpec], ...]
    rings: tuple[Resource[RingSpec], ...]


def _accepted(world: World) -> tuple[_Views, _Specs] | None:
    live = world.child(CONFIG_MAP, accepted_name(world.cluster.meta.name))
    text = ((live or {}).get("data") or {}).get(ENTRY)
    return _read(text or "", world.cluster.meta.namespace, world.cluster.meta.name)


@lru_cache(maxsize=_REMEMBERED)
def _read(text: str, namespace: str, cluster: str) -> tuple[_Views, _Specs] | None:
    """Return the specs of a cluster in its ConfigMap's entry; None when they can't be read."""
    try:
        specs = json.loads(text)
        own = parse_storage_cluster(_manifest(namespace, CLUSTER, cluster, specs[CLUSTER.plural]))
        policies = tuple(parse_storage_policy(one) for one in _manifests(namespace, POLICY, specs))
        rings = tuple(parse_ring(one) for one in _manifests(namespace, RING, specs))
    except (ValueError, KeyError, TypeError, AttributeError, SettingsError):
        # It is written anew as soon as the specs fit together.
        return None
    return _Views(own.spec, policies, rings), specs


def _manifests(namespace: str, kind: Kind, specs: _Specs) -> Iterator[Manifest]:
    for name, spec in specs[kind.plural].items():
        yield _manifest(namespace, kind, name, spec)


def _manifest(namespace: str, kind: Kind, name: str, spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def _with(world: World, views: _Views, kept: Sequence[Kind]) -> World:
    if CLUSTER in kept:
        world = replace(world, cluster=replace(world.cluster, spec=views.cluster))
    if POLICY in kept:
        readable = tuple(one for one in world.unreadable if one.kind not in kept)
        policies = tuple(_as_it_is_now(world, one) for one in views.policies)
        return replace(world, policies=policies, ring_objects=views.rings, unreadable=readable)
    there = {one.spec.ring_name for one in world.ring_objects}
    needed = {"account", "container", *(f"object-{policy.index}" for policy in policies_of(world))} - there
    gone = tuple(one for one in views.rings if one.spec.ring_name in needed)
    return replace(world, ring_objects=(*world.ring_objects, *gone)) if gone else world


def _as_it_is_now(world: World, accepted: Resource[StoragePolicySpec]) -> Resource[StoragePolicySpec]:
    """Return an accepted policy with the live object's metadata if there is one, as a deletion can't be taken back."""
    same = (
        one
        for one in world.policies
        if (one.meta.name, one.spec.index, one.spec.name)
        == (accepted.meta.name, accepted.spec.index, accepted.spec.name)
    )
    live = next(same, None)
    return accepted if live is None else replace(accepted, meta=live.meta)


def _wrong(verdicts: Sequence[Verdict]) -> frozenset[str]:
    return frozenset(one.reason for one in verdicts if one.violated and one.kind == CLUSTER.kind)


def _asked(world: World) -> dict[str, Any]:
    found: dict[str, Any] = {CLUSTER.plural: {}, POLICY.plural: {}, RING.plural: {}}
    going = {one.meta.name for one in world.policies if not counts(world, one)}
    for (kind, name), one in world.own.items():
        if kind == CLUSTER.kind:
            found[CLUSTER.plural] = one["spec"]
        elif kind == RING.kind or (kind == POLICY.kind and name not in going):
            found[POLICY.plural if kind == POLICY.kind else RING.plural][name] = one.get("spec") or {}
    return found


def _merged(world: World, asked: _Specs, accepted: _Specs, kept: Sequence[Kind]) -> dict[str, Any]:
    found = {kind.plural: (accepted if kind in kept else asked)[kind.plural] for kind in (CLUSTER, POLICY, RING)}
    names = [one.meta.name for one in world.ring_objects]
    rings = {**accepted[RING.plural], **found[RING.plural]}
    going = {one.meta.name for one in world.policies if not counts(world, one)}
    policies = {name: spec for name, spec in found[POLICY.plural].items() if name not in going}
    return {**found, POLICY.plural: policies, RING.plural: {name: rings[name] for name in sorted(names)}}


def is_accepted(world: World, policy: str) -> bool:
    """Return whether a StoragePolicy is among the specs that were accepted last."""
    known = _accepted(world)
    return known is not None and policy in known[1][POLICY.plural]
